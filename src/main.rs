//! The program: hands the command line to the library's `cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    engramfs::cli::run(std::env::args_os())
}
