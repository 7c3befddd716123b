//! Texts of a small model in a file.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests: a failure is a failed test"
)]

use corsac_engine::{InputSpec, Limits, ModelFile, Size};
use corsac_generate::{Finish, GenerateError, Request, TextModel};
use corsac_testkit::text_model::{TOKENS, continued, text_model};

fn open(bytes: Vec<u8>) -> Result<TextModel, GenerateError> {
    TextModel::from_file(ModelFile::from_bytes(bytes, &Limits::default())?, Some(1))
}

fn model(settings: &str) -> TextModel {
    open(text_model(settings, |_| ())).unwrap()
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
        assert_eq!(tokens, continued(prompt, 41));
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
                    assert_eq!(*text, continued(prompt, prompt.len() + 9));
                }
            });
        }
    });
}

#[test]
fn files_that_are_no_language_models_are_refused() {
    let refused = |settings: &str, change: &dyn Fn(&mut Vec<InputSpec>)| {
        open(text_model(settings, change)).unwrap_err().to_string()
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
