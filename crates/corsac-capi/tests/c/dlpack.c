/* Tensors of DLPack, in and out. */

#include "check.h"

/* The structures of version 1 of dlpack.h, written down a second time so that a fault in those of the
   library is found. */
typedef struct {
    int32_t device_type, device_id;
} DLDevice;
typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} DLDataType;
typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *);
} DLManagedTensor;
typedef struct DLManagedTensorVersioned {
    struct {
        uint32_t major, minor;
    } version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;

static int deleted;

static void count_deleted(DLManagedTensor *managed)
{
    CHECK(managed->manager_ctx == &deleted);
    deleted++;
    free(managed);
}

static void count_deleted_versioned(DLManagedTensorVersioned *managed)
{
    CHECK(managed->manager_ctx == &deleted);
    deleted++;
    free(managed);
}

static int64_t shape[2] = {2, 3}, by_columns[2] = {1, 2};
static float memory[8] = {-1, -1, 0, 3, 1, 4, 2, 5};

/* x of the model `rows`, by columns, behind two other numbers. */
static DLTensor x_by_columns(void)
{
    return (DLTensor){.data = memory, .device = {1, 0}, .ndim = 2, .dtype = {2, 32, 1}, .shape = shape,
                      .strides = by_columns, .byte_offset = 8};
}

static DLManagedTensor *managed_tensor(void)
{
    DLManagedTensor *managed = malloc(sizeof *managed);
    CHECK(managed != NULL);
    *managed = (DLManagedTensor){x_by_columns(), &deleted, count_deleted};
    return managed;
}

static DLManagedTensorVersioned *versioned_tensor(void)
{
    DLManagedTensorVersioned *managed = malloc(sizeof *managed);
    CHECK(managed != NULL);
    *managed = (DLManagedTensorVersioned){{1, 9}, &deleted, count_deleted_versioned, 0, x_by_columns()};
    return managed;
}

static void scaled_is_right(const corsac_model *model, const corsac_tensor *x)
{
    const float scaled[6] = {0, 10, 200, 3, 40, 500};
    corsac_view inputs[2];
    rows_inputs(inputs);
    inputs[0] = *corsac_tensor_view(x);
    corsac_tensor *outputs[2];
    SUCCEEDS(corsac_model_run, model, inputs, 2, outputs, 2);
    CHECK(has_floats(corsac_tensor_view(outputs[0]), scaled, 6));
    corsac_tensor_free(outputs[0]);
    corsac_tensor_free(outputs[1]);
}

static void tensors_are_taken_over(const corsac_model *model)
{
    corsac_tensor *x = NULL;
    deleted = 0;
    SUCCEEDS(corsac_tensor_from_dlpack, managed_tensor(), &x);
    CHECK(corsac_tensor_view(x)->data == memory + 2);
    scaled_is_right(model, x);
    CHECK(deleted == 0);
    corsac_tensor_free(x);
    CHECK(deleted == 1);

    SUCCEEDS(corsac_tensor_from_dlpack_versioned, versioned_tensor(), &x);
    scaled_is_right(model, x);
    corsac_tensor_free(x);
    CHECK(deleted == 2);

    /* Rows without strides, and without a deleter. */
    float rows[6] = {0, 1, 2, 3, 4, 5};
    DLManagedTensor managed = {x_by_columns(), NULL, NULL};
    managed.dl_tensor.data = rows;
    managed.dl_tensor.byte_offset = 0;
    managed.dl_tensor.strides = NULL;
    SUCCEEDS(corsac_tensor_from_dlpack, &managed, &x);
    CHECK(corsac_tensor_view(x)->strides[0] == 3);
    scaled_is_right(model, x);
    corsac_tensor_free(x);
}

static void others_are_refused_and_stay_the_callers(void)
{
    corsac_tensor *x = (corsac_tensor *)"not written";
    DLManagedTensor managed;
    deleted = 0;
#define REFUSED(change, text)                                                       \
    managed = (DLManagedTensor){x_by_columns(), &deleted, count_deleted};           \
    managed.dl_tensor.change;                                                       \
    FAILS(CORSAC_STATUS_ARGUMENT, text, corsac_tensor_from_dlpack, &managed, &x);   \
    CHECK(x == NULL)
    REFUSED(device.device_type = 2, "the tensor of DLPack: it is on cuda:0, and memory on cpu is needed");
    REFUSED(device = ((DLDevice){10, 3}), "it is on rocm:3");
    REFUSED(dtype.lanes = 4, "elements of 4 lanes of float32 are not supported");
    REFUSED(dtype = ((DLDataType){5, 64, 1}), "elements of complex64 are not supported");
    REFUSED(ndim = 65, "its rank is 65, and 0 to 64 is supported");
    REFUSED(ndim = -1, "its rank is -1");
    REFUSED(shape = NULL, "shape is a null pointer");
    REFUSED(data = NULL, "data is a null pointer");
    REFUSED(byte_offset = UINT64_MAX, "exceed the address space");
    int64_t negative[2] = {-1, 2}, huge[2] = {INT64_MAX, INT64_MAX};
    REFUSED(strides = negative, "dimension 0 has stride -1");
    REFUSED(shape = negative, "dimension 0 has size -1");
    REFUSED(shape = huge, "exceed the address space");
    FAILS(CORSAC_STATUS_ARGUMENT, "managed is a null pointer", corsac_tensor_from_dlpack, NULL, &x);
    FAILS(CORSAC_STATUS_ARGUMENT, "tensor is a null pointer", corsac_tensor_from_dlpack, &managed, NULL);
    DLManagedTensorVersioned newer = {{2, 0}, NULL, NULL, 0, x_by_columns()};
    FAILS(CORSAC_STATUS_ARGUMENT, "it is of version 2.0, and version 1 is read",
          corsac_tensor_from_dlpack_versioned, &newer, &x);
    CHECK(deleted == 0);
}

static void results_are_exported(const corsac_model *model)
{
    corsac_view inputs[2];
    rows_inputs(inputs);
    corsac_tensor *outputs[2];
    SUCCEEDS(corsac_model_run, model, inputs, 2, outputs, 2);
    DLManagedTensor *managed = NULL;
    DLManagedTensorVersioned *versioned = NULL;
    SUCCEEDS(corsac_tensor_to_dlpack, outputs[0], &managed);
    SUCCEEDS(corsac_tensor_to_dlpack_versioned, outputs[0], &versioned);
    CHECK(managed->dl_tensor.data == versioned->dl_tensor.data);
    corsac_tensor_free(outputs[0]);
    corsac_tensor_free(outputs[1]);
    managed->deleter(managed);
    /* The memory lives on with its last user. */
    const DLTensor *own = &versioned->dl_tensor;
    CHECK(versioned->version.major == 1 && versioned->flags == 0);
    CHECK(own->device.device_type == 1 && own->device.device_id == 0 && own->ndim == 2);
    CHECK(own->dtype.code == 2 && own->dtype.bits == 32 && own->dtype.lanes == 1);
    CHECK(own->shape[0] == 2 && own->shape[1] == 3 && own->strides[0] == 3 && own->strides[1] == 1);
    CHECK((uintptr_t)own->data % 256 == 0 && own->byte_offset == 0);
    const float scaled[6] = {0, 10, 200, 3, 40, 500};
    CHECK(memcmp(own->data, scaled, sizeof scaled) == 0);
    /* And comes back as an input. */
    corsac_tensor *again = NULL;
    SUCCEEDS(corsac_tensor_from_dlpack_versioned, versioned, &again);
    CHECK(has_floats(corsac_tensor_view(again), scaled, 6));
    corsac_tensor_free(again);
    FAILS(CORSAC_STATUS_ARGUMENT, "tensor is a null pointer", corsac_tensor_to_dlpack, NULL, &managed);
    CHECK(managed == NULL);
    FAILS(CORSAC_STATUS_ARGUMENT, "managed is a null pointer", corsac_tensor_to_dlpack, NULL, NULL);
}

static void read_only_tensors_stay_so(const corsac_model *model)
{
    DLManagedTensorVersioned *managed = versioned_tensor();
    managed->flags = 1;
    corsac_tensor *x = NULL;
    SUCCEEDS(corsac_tensor_from_dlpack_versioned, managed, &x);
    CHECK(corsac_tensor_view(x)->flags == CORSAC_VIEW_READ_ONLY);
    scaled_is_right(model, x);
    float other[6];
    const int64_t other_shape[2] = {2, 3};
    corsac_view inputs[2];
    rows_inputs(inputs);
    const corsac_view outputs[2] = {
        *corsac_tensor_view(x),
        {.data = other, .size_bytes = sizeof other, .dtype = CORSAC_DTYPE_FLOAT32, .rank = 2, .shape = other_shape},
    };
    FAILS(CORSAC_STATUS_ARGUMENT, "output 0: its memory is read-only", corsac_model_run_into, model, inputs, 2,
          outputs, 2);
    DLManagedTensor *plain = NULL;
    FAILS(CORSAC_STATUS_ARGUMENT, "it is read-only, which the unversioned form cannot say",
          corsac_tensor_to_dlpack, x, &plain);
    DLManagedTensorVersioned *versioned = NULL;
    SUCCEEDS(corsac_tensor_to_dlpack_versioned, x, &versioned);
    CHECK(versioned->flags == 1 && versioned->dl_tensor.strides[1] == 2);
    deleted = 0;
    corsac_tensor_free(x);
    CHECK(deleted == 0);
    versioned->deleter(versioned);
    CHECK(deleted == 1);
}

void test_dlpack(void)
{
    corsac_model *model = load("rows.safetensors");
    tensors_are_taken_over(model);
    others_are_refused_and_stay_the_callers();
    results_are_exported(model);
    read_only_tensors_stay_so(model);
    corsac_model_free(model);
}
