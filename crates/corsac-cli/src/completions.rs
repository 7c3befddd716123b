//! `corsac completions`: completion scripts for shells.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::arguments::{Arguments, CompletionsOptions, ShellName};
use crate::failure::Failure;

/// Prints the script.
pub(crate) fn run(options: &CompletionsOptions, out: &mut dyn Write) -> Result<(), Failure> {
    let shell = match options.shell {
        ShellName::Bash => Shell::Bash,
        ShellName::Zsh => Shell::Zsh,
        ShellName::Fish => Shell::Fish,
    };
    // clap panics if writing fails, which it does not in memory.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "corsac", &mut script);
    Ok(out.write_all(&script)?)
}
