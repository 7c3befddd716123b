//! The `corsac` program: runs, measures and shows model files that `corsac.save` wrote, continues texts with
//! language models among them, and links neither Python nor PyTorch.
//!
//! Results go to standard output, as a table or, with `--json`, for programs to read. An error is
//! one line on standard error, with exit code 2.
//!
//! ```
//! let (mut out, mut err) = (Vec::new(), Vec::new());
//! let words = ["corsac", "show", "missing.safetensors"].map(Into::into);
//! assert_eq!(corsac_cli::run(words, &mut out, &mut err), 2);
//! assert!(out.is_empty());
//! assert!(err.starts_with(b"corsac: error: "));
//! ```

#![forbid(unsafe_code)]

mod arguments;
mod bench;
mod completions;
mod failure;
mod generate;
mod npy;
mod ops;
mod run;
mod show;
mod table;

use std::ffi::OsString;
use std::io::Write;

use clap::Parser;
use clap::error::ErrorKind;

use arguments::{Arguments, Command};
use failure::Failure;

/// Exit codes.
const DONE: u8 = 0;
const FAILED: u8 = 2;

/// Runs the command line and returns the exit code.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> u8 {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            ) =>
        {
            // A failed write of the help is no error.
            let _ = write!(out, "{error}");
            return DONE;
        }
        Err(error) => return failed(&Failure::Usage(usage_error(&error)), err),
    };
    if let Some(note) = arguments.command.note() {
        let _ = writeln!(err, "corsac: note: {note}");
    }
    let done = match &arguments.command {
        Command::Run(options) => run::run(options, out),
        Command::Bench(options) => bench::run(options, out),
        Command::Show(options) => show::run(options, out),
        Command::Ops(options) => ops::run(options, out),
        Command::Generate(options) => generate::run(options, out),
        Command::Completions(options) => completions::run(options, out),
    };
    match done.and_then(|()| Ok(out.flush()?)) {
        Ok(()) => DONE,
        // The reader has closed the pipe, as `head` does.
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => DONE,
        Err(failure) => failed(&failure, err),
    }
}

fn failed(failure: &Failure, err: &mut dyn Write) -> u8 {
    // A failed write to standard error cannot be reported anywhere.
    let _ = writeln!(err, "corsac: error: {failure}");
    FAILED
}

/// The message of a clap error, in one line.
fn usage_error(error: &clap::Error) -> String {
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let mut message = first.strip_prefix("error: ").unwrap_or(first).to_owned();
    if message.ends_with(':') {
        // A list of the missing arguments follows.
        let missing = lines.take_while(|line| !line.starts_with("Usage"));
        message = format!("{message} {}", missing.collect::<Vec<_>>().join(", "));
    }
    if error.kind() == ErrorKind::MissingRequiredArgument {
        message = message.replace(
            "the following required arguments were not provided: <MODEL>",
            "MODEL is missing: a file that `corsac save` wrote",
        );
    }
    let tip = text.lines().map(str::trim);
    for tip in tip.filter_map(|line| line.strip_prefix("tip: ")) {
        message = format!("{message}: {tip}");
    }
    let values = text.lines().map(str::trim);
    for values in values.filter(|line| line.starts_with("[possible values")) {
        message = format!("{message} {values}");
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        "a command is missing".clone_into(&mut message);
    }
    format!("{message} (--help shows how)")
}
