//! `corsac generate`

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::Instant;

use corsac_engine::without_panic;
use corsac_generate::{
    Finish, GenerateError, Request, Sampling, SequenceId, TextModel, TextStream, Tokenizer,
};
use serde_json::json;

use crate::arguments::GenerateOptions;
use crate::failure::Failure;

/// A text that is being generated.
#[derive(Default)]
struct Text<'t> {
    tokens: Vec<u32>,
    stream: Option<TextStream<'t>>,
    /// What has been decoded.
    text: String,
    finish: Option<Finish>,
}

/// Continues the prompts. A panic is an error, as it is in other calls of models.
pub(crate) fn run(options: &GenerateOptions, out: &mut dyn Write) -> Result<(), Failure> {
    without_panic(|| Ok(generate(options, out))).map_err(Failure::model(&options.model.path))?
}

fn generate(options: &GenerateOptions, out: &mut dyn Write) -> Result<(), Failure> {
    if options.prompt.is_empty() && options.prompt_ids.is_empty() {
        let hint = "--prompt TEXT, or --prompt-ids N,N";
        return Err(Failure::Usage(format!(
            "a text to continue is missing ({hint})"
        )));
    }
    let failed = |error| options.failure(error);
    let file = options.model.open()?;
    let tokenizer = options.read_tokenizer()?;
    let prompts = options.prompts(tokenizer.as_ref())?;
    let model = TextModel::from_file(file, options.threads).map_err(failed)?;
    let rows = prompts.len().min(model.most_rows());
    let mut batch = model.batch(rows).map_err(failed)?;
    let start = Instant::now();
    let mut texts: BTreeMap<SequenceId, Text<'_>> = BTreeMap::new();
    for (number, prompt) in (0..).zip(prompts) {
        let id = batch.add(options.request(prompt, number)).map_err(failed)?;
        let stream = tokenizer
            .as_ref()
            .map(|own| own.stream(options.stop.clone()));
        let text = Text {
            stream,
            ..Text::default()
        };
        texts.insert(id, text);
    }
    // Several texts would be mixed.
    let is_streamed = texts.len() == 1 && !options.json;
    let mut first_token = None;
    while !batch.is_empty() {
        let tokens = batch.step().map_err(failed)?;
        first_token.get_or_insert_with(|| start.elapsed());
        for new in tokens {
            let Some(text) = texts.get_mut(&new.sequence) else {
                continue;
            };
            let piece = text.extend(new.token, new.finish).map_err(failed)?;
            if is_streamed {
                out.write_all(piece.as_bytes())?;
                out.flush()?;
            }
            if text.finish.is_some() {
                batch.remove(new.sequence);
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let texts = texts.values();
    if options.json {
        let count: usize = texts.clone().map(|text| text.tokens.len()).sum();
        let described = texts.map(|text| {
            json!({"tokens": text.tokens, "text": text.stream.as_ref().map(|_| &text.text),
                "finish": text.finish.map(Finish::name)})
        });
        let report = json!({"texts": described.collect::<Vec<_>>(), "seconds": seconds,
            "first_token_seconds": first_token.map(|time| time.as_secs_f64()),
            "tokens_per_second": count as f64 / seconds});
        writeln!(out, "{report:#}")?;
    } else if is_streamed {
        writeln!(out)?;
    } else {
        for text in texts {
            writeln!(out, "{}", text.text)?;
        }
    }
    Ok(())
}

impl Text<'_> {
    /// Adds a token, and gives the text that it adds.
    fn extend(&mut self, token: u32, finish: Option<Finish>) -> Result<String, GenerateError> {
        if finish != Some(Finish::Invalid) {
            self.tokens.push(token);
        }
        let is_text = !matches!(finish, Some(Finish::Stop | Finish::Invalid));
        self.finish = finish;
        let mut piece = String::new();
        match &mut self.stream {
            Some(stream) => {
                if is_text {
                    piece = stream.push(token)?;
                }
                if stream.is_stopped() {
                    self.finish = Some(Finish::Stop);
                } else if finish.is_some() {
                    piece.push_str(&stream.finish());
                }
            }
            None if is_text => {
                let space = if self.tokens.len() > 1 { " " } else { "" };
                piece = format!("{space}{token}");
            }
            None => {}
        }
        self.text.push_str(&piece);
        Ok(piece)
    }
}

impl GenerateOptions {
    fn failure(&self, error: GenerateError) -> Failure {
        match error {
            GenerateError::Run(error) => Failure::model(&self.model.path)(error),
            GenerateError::Model(_) => {
                let path = self.model.path.display();
                Failure::Usage(format!(
                    "{path}: {error}; `corsac save --generate` writes files that texts are generated from"
                ))
            }
            error => Failure::Usage(error.to_string()),
        }
    }

    /// The tokenizer that is named, or the one beside the model; none if the prompt needs none and there is none.
    fn read_tokenizer(&self) -> Result<Option<Tokenizer>, Failure> {
        let beside = || self.model.path.with_file_name("tokenizer.json");
        let path: PathBuf = self.tokenizer.clone().unwrap_or_else(beside);
        if self.tokenizer.is_none() && !path.exists() {
            if self.prompt.is_empty() && self.stop.is_empty() {
                return Ok(None);
            }
            return Err(Failure::Usage(format!(
                "{}: no such file; a prompt in text needs the tokenizer of the model (--tokenizer FILE), and --prompt-ids none",
                path.display()
            )));
        }
        let read = Tokenizer::load(path).map_err(|error| self.failure(error))?;
        Ok(Some(read))
    }

    /// The tokens of each prompt.
    fn prompts(&self, tokenizer: Option<&Tokenizer>) -> Result<Vec<Vec<u32>>, Failure> {
        let Some(tokenizer) = tokenizer.filter(|_| !self.prompt.is_empty()) else {
            return Ok(self.prompt_ids.iter().map(|own| own.0.clone()).collect());
        };
        let encoded = |text: &String| {
            let mut read = String::new();
            let text = match &**text {
                "-" => {
                    let input = std::io::stdin().read_to_string(&mut read);
                    input.map_err(|error| Failure::Usage(format!("standard input: {error}")))?;
                    read.trim_end_matches('\n')
                }
                text => text,
            };
            tokenizer.encode(text).map_err(|error| self.failure(error))
        };
        self.prompt.iter().map(encoded).collect()
    }

    fn request(&self, prompt: Vec<u32>, number: u64) -> Request {
        Request {
            max_new_tokens: self.max_new_tokens,
            sampling: Sampling {
                temperature: self.temperature,
                top_k: self.top_k,
                top_p: self.top_p,
                repetition_penalty: self.repetition_penalty,
                seed: self.seed.wrapping_add(number),
            },
            stop: match self.stop_ids.is_empty() {
                true => None,
                false => Some(self.stop_ids.clone()),
            },
            ..Request::new(prompt)
        }
    }
}
