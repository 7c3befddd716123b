//! The `corsac` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    corsac_engine::let_callers_work();
    let (out, err) = (std::io::stdout(), std::io::stderr());
    ExitCode::from(corsac_cli::run(
        std::env::args_os(),
        &mut out.lock(),
        &mut err.lock(),
    ))
}
