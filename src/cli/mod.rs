//! The command line: the commands in `commands/`, and the only module that prints.
//!
//! Data goes to standard output, everything else to standard error. A verb acts on a [`Target`](target::Target), a branch reached
//! through its mount or straight in its store, and is written once against both.
//!
//! A command that fails returns a [`CommandError`], which says what happened, what to do next
//! and with which exit code the process ends. Functions of this module name what is particular to them.

mod actor;
mod atomic_file;
mod commands;
mod dump;
mod embedders;
mod evaluation;
mod exit;
mod exploration;
mod failure;
mod formats;
mod output;
mod progress;
mod random_tag;
mod render;
mod sandbox;
mod supervision;
mod target;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use commands::{
    archive, backup, branches, clock, completions, diff, doctor, eval, explore, export, gate, gc, guard, import, init,
    log, man, mount, query, restore, run, status, umount, verbs, verify, wait,
};
use exit::Exit;
use failure::CommandError;
use output::{Output, remark};

#[cfg(any(fuzzing, debug_assertions))]
#[doc(hidden)]
pub use formats::fuzzing;

const EXIT_CODES: &str = "\
Exit codes:
  0 done · 1 failed · 2 wrong use · 3 conflict, or refused by a gate · 4 damaged
  5 busy: another process has the store · 6 no such store, branch, record or label · 130 interrupted

A TARGET is a branch's directory under a mount, or STORE:NAME-PATH of a store that is not mounted.
ENGRAMFS_LOG sets the log's filter (warn; also debug, or engramfs::fs=trace). NO_COLOR is honoured.";

/// Agent memory as a filesystem: branches are directories that fork in constant time, answer queries, merge and prove their history.
#[derive(Parser)]
#[command(name = "engramfs", version, after_help = EXIT_CODES, disable_help_subcommand = true, before_help = "Examples:
  engramfs mount ~/memory /mnt/memory
  engramfs query /mnt/memory/main \"what did we decide about the cache\"
  engramfs log --graph ~/memory:main")]
struct Cli {
    /// Prints JSON (JSON Lines for streams), and errors as {code, message, hint}.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Init(init::Args),
    Mount(mount::Args),
    Umount(umount::Args),
    Doctor(doctor::Args),
    Import(import::Args),
    Export(export::Args),
    #[command(flatten)]
    FromTable(verbs::VerbCommand),
    Status(status::Args),
    Branches(branches::Args),
    Diff(diff::Args),
    Log(log::Args),
    Query(query::Args),
    Wait(wait::Args),
    Gate(gate::Args),
    Guard(guard::Args),
    Explore(explore::Args),
    Run(run::Args),
    Eval(eval::Args),
    Gc(gc::Args),
    Verify(verify::Args),
    Backup(backup::Args),
    Restore(restore::Args),
    Clock(clock::Args),
    Archive(archive::Args),
    Completions(completions::Args),
    Man(man::Args),
}

/// Runs the command line `arguments`, the program's name first, and returns the exit code.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if supervision::is_supervisor_call(&arguments) {
        return supervision::supervise();
    }
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => return report_usage_error(&error, arguments.iter().any(|argument| argument == "--json")).into(),
    };
    start_log();
    crate::memory::install_sigbus_handler();
    let mut out = Output::stdout(cli.json);
    let result = dispatch(&cli.verb, &mut out).and_then(|exit| out.flush().map(|()| exit));
    let exit = result.unwrap_or_else(|failure| {
        // What was printed so far comes before the error, also where both go to one place.
        let _ = out.flush();
        if failure.exit != Exit::Done {
            remark(failure.render(cli.json));
        }
        failure.exit
    });
    exit.into()
}

fn dispatch(verb: &Verb, out: &mut Output) -> Result<Exit, CommandError> {
    match verb {
        Verb::Init(args) => init::run(args, out),
        Verb::Mount(args) => mount::run(args, out),
        Verb::Umount(args) => umount::run(args, out),
        Verb::Doctor(args) => doctor::run(args, out),
        Verb::Import(args) => import::run(args, out),
        Verb::Export(args) => export::run(args, out),
        Verb::FromTable(command) => verbs::run(command, out),
        Verb::Status(args) => status::run(args, out),
        Verb::Branches(args) => branches::run(args, out),
        Verb::Diff(args) => diff::run(args, out),
        Verb::Log(args) => log::run(args, out),
        Verb::Query(args) => query::run(args, out),
        Verb::Wait(args) => wait::run(args, out),
        Verb::Gate(args) => gate::run(args, out),
        Verb::Guard(args) => guard::run(args, out),
        Verb::Explore(args) => explore::run(args, out),
        Verb::Run(args) => run::run(args, out),
        Verb::Eval(args) => eval::run(args, out),
        Verb::Gc(args) => gc::run(args, out),
        Verb::Verify(args) => verify::run(args, out),
        Verb::Backup(args) => backup::run(args, out),
        Verb::Restore(args) => restore::run(args, out),
        Verb::Clock(args) => clock::run(args, out),
        Verb::Archive(args) => archive::run(args, out),
        Verb::Completions(args) => completions::run(args, Cli::command(), out),
        Verb::Man(args) => man::run(args, Cli::command(), out),
    }
}

/// Answers a command line that is a call for help, or none at all.
fn report_usage_error(error: &clap::Error, as_json: bool) -> Exit {
    let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if as_json && !asked {
        let text = error.render().to_string();
        // The first paragraph says what is wrong, the rest repeats the usage.
        let paragraph: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
        let message = paragraph.join(" ").trim_start_matches("error: ").to_owned();
        let hint = match error.kind() {
            ErrorKind::InvalidUtf8 => "write UTF-8; a file of a branch whose name is not has to be renamed first",
            _ => "see `engramfs --help`",
        };
        remark(CommandError::usage(message, hint).render(true));
    } else {
        // A closed output can't be reported.
        let _ = error.print();
    }
    if asked { Exit::Done } else { Exit::Usage }
}

fn start_log() {
    let filter = env_logger::Env::default().filter_or("ENGRAMFS_LOG", "warn");
    // That module dumps the bytes of requests, among them the key of an embedding server: no filter may ask for it.
    let mut builder = env_logger::Builder::from_env(filter);
    builder.filter_module("ureq_proto::util", ::log::LevelFilter::Off);
    // Only a second log in one process fails.
    let _ = builder.try_init();
}

#[cfg(test)]
mod tests;
