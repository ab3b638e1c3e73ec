//! The `redlock` binary: parse, run, exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    redlock::cli::main()
}
