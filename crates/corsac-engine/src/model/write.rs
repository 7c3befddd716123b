//! Writing model files.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use corsac_ir::{Arg, DType, Graph, GraphError, Target};
use serde_json::{Map, Value as Json, json};

use super::error::ModelError;
use super::file::ModelFile;
use super::header::file_type;
use super::limits::Limits;
use super::metadata::{
    FORMAT, GRAPH, GRAPHS, INPUTS, OWN, PROGRAMS, SIZES, STATE, WITH_CONSTANTS, WITH_GRAPHS,
    WITH_SIZES, WITH_STATE, graph_entries, program_entries, write_sizes, write_tensors, wrong,
};
use super::signature::{InputSpec, Signature};
use super::tensor::TensorSpec;

/// A program to be written to a model file.
#[derive(Clone, Copy, Debug)]
pub struct ProgramSource<'a> {
    /// Its name; empty for the only one of a file.
    pub name: &'a str,
    /// The graph. Its placeholders are the inputs, under their names, and then the state.
    pub graph: &'a Graph,
    /// The inputs and the state.
    pub signature: &'a Signature,
}

/// Writes a model to the file at `path`: `graph`, whose placeholders take `inputs` and whose
/// `get_attr` nodes name `weights`, given with their bytes in little-endian order, row by row.
///
/// The file is checked by opening it before it replaces a file at `path`, so that no file is left
/// behind that cannot be loaded, whatever happens. The same model gives the same bytes.
///
/// # Errors
/// If the file cannot be written, or would be no model file.
pub fn write_model(
    path: impl AsRef<Path>,
    graph: &Graph,
    inputs: &[TensorSpec],
    weights: &[(TensorSpec, &[u8])],
) -> Result<(), ModelError> {
    write_dynamic_model(path, graph, &Signature::fixed(inputs), weights)
}

/// As [`write_model`], for inputs whose sizes may be symbols.
///
/// # Errors
/// As [`write_model`].
pub fn write_dynamic_model(
    path: impl AsRef<Path>,
    graph: &Graph,
    signature: &Signature,
    weights: &[(TensorSpec, &[u8])],
) -> Result<(), ModelError> {
    write_programs(
        path,
        &[only(graph, signature)],
        &[],
        weights,
        &BTreeMap::new(),
    )
}

/// As [`write_model`], for any number of programs, of which the first is the default one. They share `weights` and
/// the state of their signatures, which has the same types and shapes in all of them. Weights under the names of state
/// are its initial values, of size 1 where its sizes are symbols; other state begins with zeros. `graphs` are those that
/// control flow calls, by the names under which `get_attr` nodes read them. `metadata` are other texts for the header, by
/// keys that do not begin with `corsac.`.
///
/// # Errors
/// As [`write_model`], and if programs have other state of the same name, or a key begins so.
pub fn write_programs(
    path: impl AsRef<Path>,
    programs: &[ProgramSource<'_>],
    graphs: &[(&str, &Graph)],
    weights: &[(TensorSpec, &[u8])],
    metadata: &BTreeMap<String, String>,
) -> Result<(), ModelError> {
    let path = path.as_ref();
    let failed = |source| ModelError::Io {
        path: path.to_owned(),
        source,
    };
    let header = header(programs, graphs, weights, metadata)?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // The caller does not know the temporary file: only the kind of the error is passed on.
    let mut file = temporary(folder, 0o666).map_err(|error| failed(error.kind().into()))?;
    let mut out = BufWriter::new(file.as_file_mut());
    let write = (|| {
        out.write_all(&header)?;
        for (_, bytes) in weights {
            out.write_all(bytes)?;
        }
        out.flush()?;
        out.get_ref().sync_all()
    })();
    drop(out);
    write.map_err(failed)?;
    ModelFile::open_within(file.path(), &Limits::default())?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

/// The bytes of a model file, in memory.
///
/// # Errors
/// If they would be no model file.
pub fn model_bytes(
    graph: &Graph,
    inputs: &[TensorSpec],
    weights: &[(TensorSpec, &[u8])],
) -> Result<Vec<u8>, ModelError> {
    dynamic_model_bytes(graph, &Signature::fixed(inputs), weights)
}

/// As [`model_bytes`], for inputs whose sizes may be symbols.
///
/// # Errors
/// As [`model_bytes`].
pub fn dynamic_model_bytes(
    graph: &Graph,
    signature: &Signature,
    weights: &[(TensorSpec, &[u8])],
) -> Result<Vec<u8>, ModelError> {
    programs_bytes(&[only(graph, signature)], &[], weights, &BTreeMap::new())
}

/// As [`model_bytes`], for any number of programs: see [`write_programs`].
///
/// # Errors
/// As [`model_bytes`].
pub fn programs_bytes(
    programs: &[ProgramSource<'_>],
    graphs: &[(&str, &Graph)],
    weights: &[(TensorSpec, &[u8])],
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<u8>, ModelError> {
    let mut bytes = header(programs, graphs, weights, metadata)?;
    for (_, own) in weights {
        bytes.extend_from_slice(own);
    }
    Ok(bytes)
}

/// A temporary file with these permissions, less those that the user's mask removes, to be renamed
/// when it is complete.
pub(crate) fn temporary(folder: &Path, mode: u32) -> io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".corsac-").suffix(".partial");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(mode));
    }
    #[cfg(not(unix))]
    let _ = mode;
    builder.tempfile_in(folder)
}

/// The oldest version of the format that has such inputs and weights.
fn version(signature: &Signature, weights: &[(TensorSpec, &[u8])]) -> u32 {
    let inputs = signature.inputs().iter().map(|spec| spec.dtype);
    let mut all = inputs.chain(weights.iter().map(|(spec, _)| spec.dtype));
    let is_old = |dtype| matches!(dtype, DType::Float32 | DType::Int64 | DType::Bool);
    match signature.is_dynamic() {
        true => WITH_SIZES,
        false if all.all(is_old) => 1,
        false => 2,
    }
}

/// The only program of a file.
fn only<'a>(graph: &'a Graph, signature: &'a Signature) -> ProgramSource<'a> {
    ProgramSource {
        name: "",
        graph,
        signature,
    }
}

/// The metadata of a file with these programs.
fn metadata(
    programs: &[ProgramSource<'_>],
    graphs: &[(&str, &Graph)],
    weights: &[(TensorSpec, &[u8])],
) -> Result<Json, ModelError> {
    let text = |graph: &Graph| {
        let graph = plain(graph).map_err(|error| ModelError::graph("", error.to_string()))?;
        Ok::<_, ModelError>(graph.to_lossless())
    };
    let has_constants = programs.iter().any(|own| returns_constants(own.graph));
    if let [program] = programs
        && program.name.is_empty()
        && program.signature.state().is_empty()
        && graphs.is_empty()
        && !has_constants
    {
        let signature = program.signature;
        let mut metadata = json!({
            FORMAT: version(signature, weights).to_string(),
            GRAPH: text(program.graph)?,
            INPUTS: write_tensors(INPUTS, signature.inputs())?,
        });
        if signature.is_dynamic() {
            metadata[SIZES] = write_sizes(signature)?.into();
        }
        return Ok(metadata);
    }
    let mut state: Vec<InputSpec> = Vec::new();
    for own in programs.iter().flat_map(|own| own.signature.state()) {
        match state.iter().find(|other| other.name == own.name) {
            None => state.push(own.clone()),
            Some(other) if other == own => {}
            Some(other) => {
                return Err(ModelError::State {
                    name: own.name.clone(),
                    reason: format!("{own} in one program, and {other} in another"),
                });
            }
        }
    }
    let entries = programs
        .iter()
        .map(|own| Ok((own.name, text(own.graph)?, own.signature)))
        .collect::<Result<Vec<_>, ModelError>>()?;
    let mut metadata = json!({
        FORMAT: WITH_STATE.to_string(),
        PROGRAMS: program_entries(&entries)?,
        STATE: write_tensors(STATE, &state)?,
    });
    if has_constants || !graphs.is_empty() {
        let called = graphs.iter();
        let called = called.map(|(name, graph)| Ok(((*name).to_owned(), text(graph)?)));
        metadata[GRAPHS] = graph_entries(called.collect::<Result<_, ModelError>>()?)?.into();
        let version = if has_constants {
            WITH_CONSTANTS
        } else {
            WITH_GRAPHS
        };
        metadata[FORMAT] = version.to_string().into();
    }
    Ok(metadata)
}

/// Whether there are numbers or texts among the results of a graph.
fn returns_constants(graph: &Graph) -> bool {
    fn has_constants(arg: &Arg) -> bool {
        match arg {
            Arg::Tuple(items) | Arg::List(items) => items.iter().any(has_constants),
            Arg::Dict(entries) => entries.iter().any(|(_, own)| has_constants(own)),
            other => !matches!(other, Arg::Node(_) | Arg::None),
        }
    }
    let output = graph.output_node();
    output.is_some_and(|node| graph.node(node).args().iter().any(has_constants))
}

fn header(
    programs: &[ProgramSource<'_>],
    graphs: &[(&str, &Graph)],
    weights: &[(TensorSpec, &[u8])],
    others: &BTreeMap<String, String>,
) -> Result<Vec<u8>, ModelError> {
    let mut metadata = metadata(programs, graphs, weights)?;
    for (key, text) in others {
        if key.starts_with(OWN) {
            return Err(wrong(
                FORMAT,
                format!("the key {key:?} begins with {OWN:?}"),
            ));
        }
        metadata[key] = text.as_str().into();
    }
    let mut entries = Map::new();
    entries.insert("__metadata__".to_owned(), metadata);
    let mut start = 0;
    for (spec, bytes) in weights {
        let wrong = |reason: String| ModelError::Weight {
            name: spec.name.clone(),
            reason,
        };
        let dtype = file_type(spec.dtype)
            .ok_or_else(|| wrong(format!("files have no elements of {}", spec.dtype)))?;
        let end = start + bytes.len();
        let dtype = serde_json::to_value(dtype).map_err(|error| wrong(error.to_string()))?;
        let entry = json!({"dtype": dtype, "shape": spec.shape, "data_offsets": [start, end]});
        if entries.insert(spec.name.clone(), entry).is_some() {
            return Err(wrong("two weights have this name".to_owned()));
        }
        start = end;
    }
    Ok(header_bytes(entries))
}

/// The beginning of a safetensors file whose header has these entries.
pub(crate) fn header_bytes(entries: Map<String, Json>) -> Vec<u8> {
    let text = Json::Object(entries).to_string();
    let mut header = text.into_bytes();
    // Tensors begin at a multiple of eight bytes; trailing spaces are no part of the JSON text.
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.append(&mut header);
    bytes
}

/// `graph` without the types and objects that only its host holds, and without the origins of its
/// nodes, which are paths of a machine.
fn plain(graph: &Graph) -> Result<Graph, GraphError> {
    let mut plain = graph.clone();
    let nodes: Vec<_> = plain.nodes().collect();
    for id in nodes {
        plain.set_origin(id, corsac_ir::Origin::default());
        plain.set_ty(id, None)?;
        if let Target::Function(function) = plain.node(id).target()
            && plain.function_info(function).external.is_some()
        {
            let name = plain.function_name(function).to_owned();
            let named = plain.function(&name);
            plain.set_target(id, Target::Function(named))?;
        }
    }
    Ok(plain)
}
