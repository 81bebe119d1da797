//! `engramfs completions`: what a shell needs to complete the command line.

use clap_complete::Shell;
use serde_json::json;

use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::Output;

/// Prints the completions for a shell.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs completions bash > /etc/bash_completion.d/engramfs
  engramfs completions fish > ~/.config/fish/completions/engramfs.fish")]
pub struct Args {
    /// The shell that will read the completions.
    shell: Shell,
}

/// Prints the completions for a shell, as JSON in `script`. `command` describes the whole command line. Fails only if standard output can't
/// be written.
pub fn run(args: &Args, mut command: clap::Command, out: &mut Output) -> Result<Exit, CommandError> {
    // The generator panics where it can't write, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "engramfs", &mut script);
    if out.is_json() {
        out.line(json!({ "shell": args.shell.to_string(), "script": String::from_utf8_lossy(&script) }))?;
    } else {
        out.bytes(&script)?;
    }
    Ok(Exit::Done)
}
