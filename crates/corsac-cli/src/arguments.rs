//! The command line.

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use corsac_engine::{
    MOST_THREADS, Model, ModelFile, Precision, Signature, SizeValues, parse_threads,
    threads_setting,
};

use crate::failure::Failure;

/// Run models in files that `corsac.save` wrote, without Python.
#[derive(Debug, Parser)]
#[command(name = "corsac", version, term_width = 100)]
#[command(
    after_help = "example:\n  corsac run resnet50.safetensors --input image.npy --output scores.npy"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Subcommands with their options.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a model on arrays in files
    #[command(
        after_help = "example:\n  corsac run resnet50.safetensors --input image.npy --output scores.npy\n  \
        corsac run add.safetensors --input y=1.npy --input x=2.npy"
    )]
    Run(RunOptions),
    /// Measure how long a model takes
    #[command(
        after_help = "examples:\n  corsac bench resnet50.safetensors --threads 2 --repeat 50\n  \
        corsac bench bert.safetensors --size batch=8 --size length=128"
    )]
    Bench(BenchOptions),
    /// Print the graph of a model
    #[command(after_help = "example:\n  corsac show resnet50.safetensors --format code")]
    Show(ShowOptions),
    /// Count what a model computes, and the bytes that it reads and writes
    #[command(after_help = "example:\n  corsac ops resnet50.safetensors --json")]
    Ops(OpsOptions),
    /// Continue texts with a language model
    #[command(
        after_help = "examples:\n  corsac generate gpt2.safetensors --prompt \"The fox\" --temperature 0.8 --top-p 0.9\n  \
        corsac generate gpt2.safetensors --prompt-ids 464,21831 --max-new-tokens 20 --json"
    )]
    Generate(GenerateOptions),
    /// Print what completes commands and options in a shell
    #[command(after_help = "examples:\n  corsac completions bash > \
        ~/.local/share/bash-completion/completions/corsac\n  \
        corsac completions fish > ~/.config/fish/completions/corsac.fish")]
    Completions(CompletionsOptions),
}

/// Options of `completions`.
#[derive(Args, Debug)]
pub(crate) struct CompletionsOptions {
    /// The shell for which a script is printed
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: ShellName,
}

/// Shells with completion scripts, the same as in the Python program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShellName {
    Bash,
    Zsh,
    Fish,
}

/// A model file.
#[derive(Args, Debug)]
pub(crate) struct FileArgument {
    /// The model: a file that `corsac.save` wrote
    #[arg(value_name = "MODEL")]
    pub(crate) path: PathBuf,
}

/// The model: a program of a file.
#[derive(Args, Debug)]
pub(crate) struct ModelArgument {
    #[command(flatten)]
    pub(crate) file: FileArgument,
    /// A program of the file (the first)
    #[arg(long, value_name = "NAME")]
    pub(crate) program: Option<String>,
}

/// Element type in which convolutions and linear layers multiply. The values have no documentation
/// of their own: with it, clap would print every option of the command on separate lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PrecisionName {
    F32,
    Bf16,
}

impl FileArgument {
    pub(crate) fn open(&self) -> Result<ModelFile, Failure> {
        if let Some(reason) = self.no_file() {
            return Err(Failure::Usage(reason));
        }
        ModelFile::open(&self.path).map_err(Failure::model(&self.path))
    }

    /// An error message, if the path names a Python model or a folder instead of a model file.
    fn no_file(&self) -> Option<String> {
        let name = self.path.to_string_lossy();
        let suffix = self.path.extension().and_then(|suffix| suffix.to_str());
        let is_program = match suffix {
            Some("py") => true,
            Some("safetensors") => false,
            _ => name.contains(':') && !self.path.exists(),
        };
        if is_program {
            return Some(format!(
                "{name} is a model in Python, and a file that `corsac save` wrote is needed: \
                 corsac save {name} --input SHAPE --out model.safetensors"
            ));
        }
        self.path
            .is_dir()
            .then(|| format!("{name} is a folder, and a file that `corsac save` wrote is needed"))
    }
}

impl ModelArgument {
    pub(crate) fn path(&self) -> &Path {
        &self.file.path
    }

    pub(crate) fn open(&self) -> Result<ModelFile, Failure> {
        let file = self.file.open()?;
        match &self.program {
            Some(name) => file.with_program(name).map_err(Failure::model(self.path())),
            None => Ok(file),
        }
    }

    pub(crate) fn load(
        &self,
        precision: PrecisionName,
        threads: Option<usize>,
    ) -> Result<Model, Failure> {
        if let (None, Err(text)) = (threads, threads_setting()) {
            return Err(Failure::Usage(text));
        }
        let file = self.open()?;
        let file = match precision.precision() {
            Precision::F32 => Ok(file),
            precision @ Precision::Bf16 => file.with_precision(precision),
        };
        let model = file
            .and_then(Model::from_file)
            .map_err(Failure::model(self.path()))?;
        Ok(match threads {
            Some(threads) => model.with_threads(threads),
            None => model,
        })
    }
}

/// Sizes of a model whose sizes are symbols.
#[derive(Args, Debug)]
pub(crate) struct SizeArgument {
    /// A size of the model, where its sizes are names: batch=8; once per name
    #[arg(long, value_name = "NAME=N", value_parser = size)]
    pub(crate) size: Vec<(String, usize)>,
}

/// Sizes by name.
pub(crate) fn named(sizes: &[(String, usize)]) -> Vec<(&str, usize)> {
    let named = sizes.iter();
    named.map(|(name, size)| (&**name, *size)).collect()
}

impl SizeArgument {
    /// The values of the symbols of a model.
    pub(crate) fn values(&self, signature: &Signature) -> Result<SizeValues, Failure> {
        let values = signature.values(&named(&self.size));
        values.map_err(|error| Failure::Usage(format!("{error} (--size NAME=N)")))
    }
}

/// Sizes of the state of a model.
#[derive(Args, Debug)]
pub(crate) struct StateSizeArgument {
    /// A size of the state of the model, where its sizes are names: capacity=64; once per name
    #[arg(long, value_name = "NAME=N", value_parser = size)]
    pub(crate) size: Vec<(String, usize)>,
}

fn size(text: &str) -> Result<(String, usize), String> {
    let parts = text.split_once('=');
    let parts = parts.and_then(|(name, size)| Some((name.to_owned(), size.parse().ok()?)));
    parts.ok_or_else(|| "a name and a number are needed, such as batch=8".to_owned())
}

impl PrecisionName {
    pub(crate) fn precision(self) -> Precision {
        match self {
            Self::F32 => Precision::F32,
            Self::Bf16 => Precision::Bf16,
        }
    }
}

impl Command {
    /// A note for the user, if the processor makes `--precision bf16` ineffective.
    pub(crate) fn note(&self) -> Option<&'static str> {
        let precision = match self {
            Self::Run(options) => options.precision.precision(),
            Self::Bench(options) => options.precision.precision(),
            Self::Show(_) | Self::Ops(_) | Self::Generate(_) | Self::Completions(_) => {
                Precision::F32
            }
        };
        (precision != precision.effective()).then_some(
            "--precision bf16 changes nothing: this processor multiplies no bfloat16 numbers (AMX, AVX-512 BF16)",
        )
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    parse_threads(text).ok_or_else(|| format!("a number from 1 to {MOST_THREADS} is needed"))
}

/// Options of `run`.
#[derive(Args, Debug)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    pub(crate) model: ModelArgument,
    /// An input: a *.npy file, in the order of the inputs or after a name; once per input
    #[arg(long, value_name = "[NAME=]FILE")]
    pub(crate) input: Vec<String>,
    /// File for a result, *.npy: in the order of the results or after a name
    #[arg(long, value_name = "[NAME=]FILE")]
    pub(crate) output: Vec<String>,
    #[command(flatten)]
    pub(crate) sizes: StateSizeArgument,
    /// Precision of the products of convolutions and linear layers; bf16 where the processor has them (AMX, AVX-512 BF16)
    #[arg(long, value_enum, value_name = "TYPE", default_value = "f32")]
    pub(crate) precision: PrecisionName,
    /// Number of threads (CORSAC_NUM_THREADS, or as many as there are)
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) threads: Option<usize>,
    /// Print JSON, for programs to read
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `bench`.
#[derive(Args, Debug)]
pub(crate) struct BenchOptions {
    #[command(flatten)]
    pub(crate) model: ModelArgument,
    /// An input: a *.npy file, as for run (made-up numbers)
    #[arg(long, value_name = "[NAME=]FILE", conflicts_with = "size")]
    pub(crate) input: Vec<String>,
    #[command(flatten)]
    pub(crate) sizes: SizeArgument,
    /// Number of calls that are timed, after three that are not
    #[arg(long, value_name = "N", default_value = "20", value_parser = at_least_one)]
    pub(crate) repeat: usize,
    /// Precision of the products of convolutions and linear layers; bf16 where the processor has them (AMX, AVX-512 BF16)
    #[arg(long, value_enum, value_name = "TYPE", default_value = "f32")]
    pub(crate) precision: PrecisionName,
    /// Number of threads (CORSAC_NUM_THREADS, or as many as there are)
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) threads: Option<usize>,
    /// Print JSON, for programs to read
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `show`.
#[derive(Args, Debug)]
pub(crate) struct ShowOptions {
    #[command(flatten)]
    pub(crate) model: ModelArgument,
    #[command(flatten)]
    pub(crate) sizes: SizeArgument,
    /// Form of the output
    #[arg(long, value_enum, default_value = "graph")]
    pub(crate) format: Format,
    /// The same as --format lossless
    #[arg(long, conflicts_with = "format")]
    pub(crate) lossless: bool,
    /// Print JSON, for programs to read: inputs, results, weights, and the nodes of the graph
    #[arg(long, conflicts_with_all = ["format", "lossless"])]
    pub(crate) json: bool,
}

/// Forms of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// One line a node, with the types of the values
    Graph,
    /// Opcode, name, target and arguments in columns
    Table,
    /// The function in Python that the graph is
    Code,
    /// The steps that the engine runs
    Program,
    /// The text in the file
    Lossless,
}

/// Options of `ops`.
#[derive(Args, Debug)]
pub(crate) struct OpsOptions {
    #[command(flatten)]
    pub(crate) model: ModelArgument,
    #[command(flatten)]
    pub(crate) sizes: SizeArgument,
    /// Print JSON, for programs to read
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `generate`.
#[derive(Args, Debug)]
pub(crate) struct GenerateOptions {
    #[command(flatten)]
    pub(crate) model: FileArgument,
    /// A text to continue, or - for standard input; several are continued together
    #[arg(long, value_name = "TEXT")]
    pub(crate) prompt: Vec<String>,
    /// A text as tokens: 464,21831; several are continued together
    #[arg(long, value_name = "N,N", value_parser = tokens, conflicts_with = "prompt")]
    pub(crate) prompt_ids: Vec<Tokens>,
    /// The tokenizer.json of the model (beside the model)
    #[arg(long, value_name = "FILE")]
    pub(crate) tokenizer: Option<PathBuf>,
    /// Most tokens to add
    #[arg(long, value_name = "N", default_value = "256")]
    pub(crate) max_new_tokens: usize,
    /// How much chance decides: 0 takes the most probable token, 1 each as often as it is probable
    #[arg(long, value_name = "T", default_value = "0")]
    pub(crate) temperature: f32,
    /// Choose among the N most probable tokens only
    #[arg(long, value_name = "N")]
    pub(crate) top_k: Option<usize>,
    /// Choose among the fewest tokens whose probabilities add up to P
    #[arg(long, value_name = "P")]
    pub(crate) top_p: Option<f32>,
    /// Above 1: tokens that are in the text already are less probable
    #[arg(long, value_name = "F", default_value = "1")]
    pub(crate) repetition_penalty: f32,
    /// What chance begins with: equal seeds give equal texts
    #[arg(long, value_name = "N", default_value = "0")]
    pub(crate) seed: u64,
    /// End before this text; once per text
    #[arg(long, value_name = "TEXT")]
    pub(crate) stop: Vec<String>,
    /// Tokens that end a text (those of the model)
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    pub(crate) stop_ids: Vec<u32>,
    /// Number of threads (CORSAC_NUM_THREADS, or as many as there are)
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) threads: Option<usize>,
    /// Print JSON, for programs to read: tokens, text, times
    #[arg(long)]
    pub(crate) json: bool,
}

/// Tokens of a prompt.
#[derive(Clone, Debug)]
pub(crate) struct Tokens(pub(crate) Vec<u32>);

fn tokens(text: &str) -> Result<Tokens, String> {
    let parsed = text.split(',').map(|part| part.trim().parse());
    let parsed: Result<Vec<u32>, _> = parsed.collect();
    parsed
        .map(Tokens)
        .map_err(|_| "numbers are needed, such as 464,21831".to_owned())
}
