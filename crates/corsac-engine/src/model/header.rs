//! The header of a safetensors file: names, types, shapes and places of tensors, and metadata.

use std::collections::HashMap;
use std::fmt;

use rustc_hash::FxHashSet;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use super::error::ModelError;
use corsac_ir::DType;

/// Bytes of the length in front of the header.
pub(super) const LENGTH_BYTES: u64 = 8;

/// Contents of a header: each name once, tensors in the order in which they lie in the file.
#[derive(Debug, Default)]
pub(super) struct Header {
    pub(super) metadata: HashMap<String, String>,
    pub(super) tensors: Vec<(String, TensorInfo)>,
    /// Bytes of all tensors.
    pub(super) data_bytes: u64,
}

impl Header {
    /// Reads the JSON text of a header. Checks that tensors follow each other without gaps, and
    /// have the sizes of their shapes.
    pub(super) fn parse(json: &[u8]) -> Result<Self, ModelError> {
        let mut header: Self =
            serde_json::from_slice(json).map_err(|error| ModelError::format(error.to_string()))?;
        header
            .tensors
            .sort_by_key(|(_, tensor)| tensor.data_offsets);
        let checked = Metadata::new(None, header.tensors.clone());
        let checked = checked.map_err(|error| ModelError::format(error.to_string()))?;
        header.data_bytes = checked.data_len() as u64;
        Ok(header)
    }
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names of tensors, each once")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut header = Header::default();
                let mut seen = FxHashSet::default();
                while let Some(name) = map.next_key::<String>()? {
                    if !seen.insert(name.clone()) {
                        return Err(A::Error::custom(format!("the name {name:?} stands twice")));
                    }
                    if name == "__metadata__" {
                        header.metadata = map.next_value::<Once>()?.0;
                    } else {
                        header.tensors.push((name, map.next_value()?));
                    }
                }
                Ok(header)
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

/// Strings by name; a repeated name is an error.
struct Once(HashMap<String, String>);

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Strings;

        impl<'de> Visitor<'de> for Strings {
            type Value = Once;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("strings by name, each name once")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Once, A::Error> {
                let mut strings = HashMap::new();
                while let Some((name, value)) = map.next_entry::<String, String>()? {
                    if strings.contains_key(&name) {
                        return Err(A::Error::custom(format!("the key {name:?} stands twice")));
                    }
                    strings.insert(name, value);
                }
                Ok(Once(strings))
            }
        }

        deserializer.deserialize_map(Strings)
    }
}

/// Pairs of element types of files and graphs.
const DTYPES: &[(Dtype, DType)] = &[
    (Dtype::F64, DType::Float64),
    (Dtype::F32, DType::Float32),
    (Dtype::F16, DType::Float16),
    (Dtype::BF16, DType::BFloat16),
    (Dtype::F8_E4M3, DType::Float8E4M3Fn),
    (Dtype::F8_E4M3FNUZ, DType::Float8E4M3FnUz),
    (Dtype::F8_E5M2, DType::Float8E5M2),
    (Dtype::F8_E5M2FNUZ, DType::Float8E5M2FnUz),
    (Dtype::F8_E8M0, DType::Float8E8M0Fnu),
    (Dtype::C64, DType::Complex64),
    (Dtype::I64, DType::Int64),
    (Dtype::I32, DType::Int32),
    (Dtype::I16, DType::Int16),
    (Dtype::I8, DType::Int8),
    (Dtype::U64, DType::UInt64),
    (Dtype::U32, DType::UInt32),
    (Dtype::U16, DType::UInt16),
    (Dtype::U8, DType::UInt8),
    (Dtype::BOOL, DType::Bool),
];

/// The element type of the graph for a type of the file; `None` if there is none.
pub(super) fn graph_type(dtype: Dtype) -> Option<DType> {
    let found = DTYPES.iter().find(|(own, _)| *own == dtype);
    found.map(|(_, dtype)| *dtype)
}

/// The type of the file for an element type of the graph; `None` if there is none.
pub(super) fn file_type(dtype: DType) -> Option<Dtype> {
    let found = DTYPES.iter().find(|(_, own)| *own == dtype);
    found.map(|(dtype, _)| *dtype)
}
