//! Texts of a small model in a file.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests: a failure is a failed test"
)]

use std::collections::BTreeMap;

use corsac_engine::{
    DType, InputSpec, Limits, ModelFile, ProgramSource, Signature, Size, SizeSymbol, TensorSpec,
    programs_bytes,
};
use corsac_generate::{Finish, GenerateError, Request, SETTINGS, TextModel};
use corsac_ir::Graph;

/// Number of tokens.
const TOKENS: usize = 5;

/// A model that keeps all tokens, and whose next one is the number of even tokens in the text, up to 4.
fn bytes(settings: &str, change: impl Fn(&mut Vec<InputSpec>)) -> Vec<u8> {
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
    .unwrap();
    let size = |text: &str| match text.parse() {
        Ok(number) => Size::Fixed(number),
        Err(_) => text.parse().unwrap(),
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
        Signature::with_state(inputs, state, symbols, Vec::new()).unwrap()
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
    programs_bytes(&programs, &[], &[(spec, &table)], &metadata).unwrap()
}

fn open(bytes: Vec<u8>) -> Result<TextModel, GenerateError> {
    TextModel::from_file(ModelFile::from_bytes(bytes, &Limits::default())?, Some(1))
}

fn model(settings: &str) -> TextModel {
    open(bytes(settings, |_| ())).unwrap()
}

/// What the model makes of a text, and why it ends.
fn expected(prompt: &[u32], longest: usize) -> Vec<u32> {
    let mut text = prompt.to_vec();
    while text.len() < longest {
        let even = text.iter().filter(|&own| own % 2 == 0).count();
        text.push(even.min(4) as u32);
    }
    text.split_off(prompt.len())
}

fn request(prompt: &[u32], tokens: usize) -> Request {
    Request {
        max_new_tokens: tokens,
        ..Request::new(prompt)
    }
}

#[test]
fn a_text_is_continued_until_the_model_takes_no_more() {
    let model = model("{}");
    assert_eq!((model.vocabulary(), model.longest_text()), (TOKENS, 40));
    for prompt in [&[1][..], &[0, 1, 3], &[3; 39], &[2; 40]] {
        let found: Vec<_> = model.generate(request(prompt, 99)).unwrap().collect();
        let tokens: Vec<u32> = found
            .iter()
            .map(|own| own.as_ref().unwrap().token)
            .collect();
        assert_eq!(tokens, expected(prompt, 41));
        let last = found.last().unwrap().as_ref().unwrap();
        assert_eq!(last.finish, Some(Finish::Full));
    }
}

#[test]
fn settings_of_the_file_end_texts() {
    let model = model(r#"{"stop": [3], "length": 20}"#);
    assert_eq!((model.stop(), model.longest_text()), (&[3][..], 20));
    let found: Vec<_> = model.generate(request(&[0, 2], 99)).unwrap().collect();
    let found: Vec<_> = found.into_iter().map(Result::unwrap).collect();
    assert_eq!(found.len(), 2);
    assert_eq!((found[1].token, found[1].finish), (3, Some(Finish::Stop)));
}

#[test]
fn texts_are_continued_together_on_several_threads() {
    let model = model("{}");
    std::thread::scope(|scope| {
        for first in 0..4 {
            let model = &model;
            scope.spawn(move || {
                let mut batch = model.batch(3).unwrap();
                let prompts = [
                    vec![first; 7],
                    vec![1],
                    vec![0, 2],
                    vec![3, first],
                    vec![1; 30],
                ];
                let mut texts = prompts.clone().map(|prompt| {
                    let id = batch.add(request(&prompt, 9)).unwrap();
                    (id, Vec::new())
                });
                while !batch.is_empty() {
                    for new in batch.step().unwrap() {
                        let (_, text) = texts
                            .iter_mut()
                            .find(|(id, _)| *id == new.sequence)
                            .unwrap();
                        text.push(new.token);
                    }
                }
                for (prompt, (_, text)) in prompts.iter().zip(&texts) {
                    assert_eq!(*text, expected(prompt, prompt.len() + 9));
                }
            });
        }
    });
}

#[test]
fn files_that_are_no_language_models_are_refused() {
    let refused = |settings: &str, change: &dyn Fn(&mut Vec<InputSpec>)| {
        open(bytes(settings, change)).unwrap_err().to_string()
    };
    assert!(refused("[1", &|_| ()).starts_with("its settings of generation: "));
    assert_eq!(
        refused(r#"{"length": 3}"#, &|_| ()),
        "texts of 3 tokens, and caches for 4 at least"
    );
    assert_eq!(
        refused("{}", &|inputs| inputs[2].shape.push(Size::Fixed(1))),
        "the program \"prompt\" has the input start: int64[1]"
    );
    let model = model("{}");
    assert!(model.batch(0).is_err());
    assert!(model.batch(4).is_err());
}
