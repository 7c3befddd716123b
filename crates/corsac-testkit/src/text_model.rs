//! A small language model in a file.

use std::collections::BTreeMap;

use corsac_engine::{
    DType, InputSpec, ProgramSource, Signature, Size, SizeSymbol, TensorSpec, programs_bytes,
};
use corsac_generate::SETTINGS;
use corsac_ir::Graph;

/// Number of tokens of [`text_model`].
pub const TOKENS: usize = 5;

/// The file of a language model that keeps all tokens, and whose next one is the number of even tokens in the text, up
/// to 4. It takes 3 texts at once, of 40 tokens. `settings` are those of generation, in JSON, and `change` makes other
/// inputs of its programs.
///
/// # Panics
/// If the inputs are none of a program.
#[must_use]
pub fn text_model(settings: &str, change: impl Fn(&mut Vec<InputSpec>)) -> Vec<u8> {
    let graph = Graph::parse(
        "graph v1:
        %ids = placeholder[target=ids]
        %mask = placeholder[target=mask]
        %start = placeholder[target=start]
        %seen = placeholder[target=seen]
        %n = call_method[target=size](args = (%ids, 1), kwargs = {})
        %first = call_function[target=torch.arange](args = (%n,), kwargs = {})
        %columns = call_method[target=add](args = (%first, %start), kwargs = {})
        %rest = call_function[target=torch.remainder](args = (%ids, 2), kwargs = {})
        %even = call_function[target=torch.sub](args = (1, %rest), kwargs = {})
        %all = call_method[target=index_copy_](args = (%seen, 1, %columns, %even), kwargs = {})
        %own = call_function[target=torch.mul](args = (%all, %mask), kwargs = {})
        %sum = call_method[target=sum](args = (%own, 1), kwargs = {})
        %next = call_method[target=clamp](args = (%sum, 0, 4), kwargs = {})
        %table = get_attr[target=table]
        %logits = call_function[target=torch.nn.functional.embedding](args = (%next, %table), kwargs = {})
        %output = output[target=output](args = (%logits,), kwargs = {})",
    )
    .expect("a valid model");
    let size = |text: &str| match text.parse() {
        Ok(number) => Size::Fixed(number),
        Err(_) => text.parse().expect("a valid model"),
    };
    let spec = |name: &str, shape: &[&str]| InputSpec {
        name: name.to_owned(),
        dtype: DType::Int64,
        shape: shape.iter().map(|text| size(text)).collect(),
    };
    let symbol = |name: &str, least, most| SizeSymbol {
        name: name.to_owned(),
        least,
        most: Some(most),
    };
    let signature = |length: &str| {
        let mut inputs = vec![
            spec("ids", &["batch", length]),
            spec("mask", &["batch", "capacity"]),
            spec("start", &[]),
        ];
        change(&mut inputs);
        let state = vec![spec("seen", &["batch", "capacity"])];
        let mut symbols = vec![symbol("batch", 1, 3), symbol("capacity", 4, 40)];
        if length == "length" {
            symbols.push(symbol("length", 2, 4));
        }
        Signature::with_state(inputs, state, symbols, Vec::new()).expect("a valid model")
    };
    let (prompt, token) = (signature("length"), signature("1"));
    let program = |name, signature| ProgramSource {
        name,
        graph: &graph,
        signature,
    };
    let table: Vec<u8> = (0..TOKENS * TOKENS)
        .map(|at| f32::from(u8::from(at % (TOKENS + 1) == 0)))
        .flat_map(f32::to_le_bytes)
        .collect();
    let spec = TensorSpec {
        name: "table".to_owned(),
        dtype: DType::Float32,
        shape: vec![TOKENS, TOKENS],
    };
    let metadata = BTreeMap::from([(SETTINGS.to_owned(), settings.to_owned())]);
    let programs = [program("prompt", &prompt), program("token", &token)];
    programs_bytes(&programs, &[], &[(spec, &table)], &metadata).expect("a valid model")
}

/// The tokens by which [`text_model`] continues a prompt to a length.
#[must_use]
pub fn continued(prompt: &[u32], length: usize) -> Vec<u32> {
    let mut text = prompt.to_vec();
    while text.len() < length {
        let even = text.iter().filter(|&own| own % 2 == 0).count();
        text.push(even.min(4) as u32);
    }
    text.split_off(prompt.len())
}
