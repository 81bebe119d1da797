//! The commands of the table of verbs: `engramfs VERB TARGET` and the arguments of the verb.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches, Subcommand};
use serde_json::{Value, json};

use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::{Output, remark};
use crate::cli::render::outcome::Receiver;
use crate::cli::render::{facts, outcome};
use crate::cli::target::{Access, BranchAccess, Target};
use crate::memory::Document;
use crate::verb::{Argument, ArgumentForm, Arguments, CliForm, CliHelp, Report, VERBS, Verb, VerbAnswer, VerbSpec};

const TARGET: &str = "target";

/// A verb, the branch that it is for, and what else was written.
#[derive(Debug)]
pub struct VerbCommand {
    spec: &'static VerbSpec,
    target: PathBuf,
    arguments: Arguments,
}

fn commands() -> impl Iterator<Item = (&'static VerbSpec, CliHelp)> {
    VERBS.iter().copied().filter_map(|spec| match spec.command {
        CliForm::FromTable(help) => Some((spec, help)),
        CliForm::OwnModule | CliForm::None => None,
    })
}

impl Subcommand for VerbCommand {
    fn augment_subcommands(command: Command) -> Command {
        command.subcommands(commands().map(|(spec, help)| definition(spec, help)))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        VerbCommand::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        commands().any(|(spec, _)| spec.name == name)
    }
}

impl FromArgMatches for VerbCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<VerbCommand, clap::Error> {
        let found = matches.subcommand().and_then(|(name, given)| {
            let (spec, _) = commands().find(|(spec, _)| spec.name == name)?;
            let target = given.get_one::<PathBuf>(TARGET)?.clone();
            Some(VerbCommand { spec, target, arguments: arguments(spec, given) })
        });
        found.ok_or_else(|| clap::Error::new(clap::error::ErrorKind::MissingSubcommand))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = VerbCommand::from_arg_matches(matches)?;
        Ok(())
    }
}

fn definition(spec: &'static VerbSpec, help: CliHelp) -> Command {
    let path = clap::value_parser!(PathBuf);
    let target = Arg::new(TARGET).value_name("TARGET").required(true).value_parser(path).help(help.target);
    let taken = spec.arguments.iter();
    Command::new(spec.name).about(help.about).before_help(format!("Examples:\n{}", help.examples)).arg(target).args(
        taken.map(|argument| match argument.form {
            ArgumentForm::Word | ArgumentForm::Phrase => arg(argument).required(true),
            ArgumentForm::OptionalWord => arg(argument),
            ArgumentForm::Words => arg(argument).required(true).num_args(1..).action(ArgAction::Append),
            ArgumentForm::Text => arg(argument).num_args(1..).action(ArgAction::Append),
            ArgumentForm::Option(word) => arg(argument).long(word.trim_start_matches('-')),
            ArgumentForm::Flag => arg(argument).long(argument.name.trim_start_matches('-')).action(ArgAction::SetTrue),
            ArgumentForm::List | ArgumentForm::Note => arg(argument).num_args(1..).action(ArgAction::Append).last(true),
        }),
    )
}

fn arg(argument: &Argument) -> Arg {
    // A time may begin with a dash, as -2h does.
    let arg = Arg::new(argument.name).value_name(argument.name).help(argument.help);
    arg.allow_hyphen_values(argument.is_revision)
}

fn arguments(spec: &VerbSpec, given: &ArgMatches) -> Arguments {
    let mut arguments = Arguments::default();
    for argument in spec.arguments {
        if argument.form == ArgumentForm::Flag {
            if given.get_flag(argument.name) {
                arguments.set(argument, vec![String::new()]);
            }
        } else if let Some(words) = given.get_many::<String>(argument.name) {
            let words: Vec<String> = words.cloned().collect();
            let is_text = matches!(argument.form, ArgumentForm::Text | ArgumentForm::Note);
            arguments.set(argument, if is_text { vec![words.join(" ")] } else { words });
        }
    }
    arguments
}

/// Does the verb, and prints what came of it. [`Exit::Refused`] if a conflict or a gate prevents it.
pub fn run(command: &VerbCommand, out: &mut Output) -> Result<Exit, CommandError> {
    let VerbCommand { spec, target, arguments } = command;
    let target = Target::parse(target)?;
    let access = if spec.changes { Access::Write } else { Access::Read };
    // Whose a branch was is not known any more when it is gone.
    let restore = if matches!(spec.report, Report::Discard) { restore_hint(&target) } else { String::new() };
    let answer = target.with_branch(access, |branch| {
        // What is wrong with an argument is wrong use, as what clap refuses.
        let verb =
            Verb::new(spec, arguments.clone()).map_err(|error| CommandError::usage(error.to_string(), error.hint()))?;
        branch.run(&verb).map_err(|failure| match spec.report {
            Report::Merge => with_conflicts(branch, failure),
            _ => failure,
        })
    })?;
    match answer {
        VerbAnswer::Object(object) => match object.content.filter(|_| !out.is_json()) {
            Some(content) => out.bytes(&content)?,
            None => out.text(&object.line)?,
        },
        VerbAnswer::Line(line) => return print(&target, command, (&line, &restore), out),
    }
    Ok(Exit::Done)
}

fn print(
    target: &Target,
    command: &VerbCommand,
    (line, restore): (&str, &str),
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let VerbCommand { spec, arguments, .. } = command;
    match spec.report {
        Report::Child(name) => {
            let (child, answer) = (target.child(arguments.required(&name)).to_string(), parse(line)?);
            match (answer.get("from"), out.is_json()) {
                (None, true) => out.line(json!({ "target": child }))?,
                (Some(from), true) => out.line(json!({ "target": child, "from": from }))?,
                (None, false) => out.line(child)?,
                (Some(from), false) => {
                    out.line(&child)?;
                    // Beside the data, which scripts take for the path.
                    remark(format_args!("{child} begins as it was at {}", outcome::state_name(from)));
                }
            }
        }
        Report::Discard => {
            let text = format!("discarded {target}{restore}\n");
            if out.is_json() { out.line(json!({ "discarded": target.to_string() }))? } else { out.text(&text)? }
        }
        Report::Silent(object) => out.json_only(&object(&target.to_string(), arguments))?,
        Report::Merge => {
            let result = parse(line)?;
            if out.is_json() {
                out.line(&result)?
            } else {
                out.text(&outcome::render(&result, &receiver(target, spec.name, &result)))?
            }
            if result.get("status").is_some_and(|status| status == "blocked") {
                return Ok(Exit::Refused);
            }
        }
        Report::Rollback => {
            let result = parse(line)?;
            if out.is_json() {
                out.line(&result)?
            } else {
                out.text(&outcome::render_rollback(&result, &target.to_string()))?
            }
        }
        Report::Facts | Report::Object => print_facts(line, out)?,
    }
    Ok(Exit::Done)
}

/// Returns how a branch comes back that is about to be discarded, and by whom.
fn restore_hint(target: &Target) -> String {
    let Some((parent, name)) = target.parent() else { return String::new() };
    let command = format!("`engramfs fork --from-discarded {name} {parent} {name}`");
    match target.foreign_owner() {
        None => format!("; {command} brings it back while config/keep keeps it"),
        Some(uid) => format!("; uid {uid}, whose it was, can bring it back while config/keep keeps it: {command}"),
    }
}

/// Returns the branch that a verb changes.
fn receiver(target: &Target, verb: &str, result: &Value) -> Receiver {
    if !matches!(verb, "merge" | "promote") {
        return Receiver::Own(target.to_string());
    }
    let Some((parent, _)) = target.parent() else {
        let path = result.get("branch").and_then(Value::as_str).unwrap_or_default();
        return Receiver::OutOfReach(path.rsplit_once('/').map_or(path, |(parent, _)| parent).to_owned());
    };
    match parent.foreign_owner() {
        None => Receiver::Own(parent.to_string()),
        Some(uid) => Receiver::Foreign { target: parent.to_string(), uid },
    }
}

/// Prints the members of an answer. Fails if it is not JSON, or standard output can't be written.
pub fn print_facts(line: &str, out: &mut Output) -> Result<(), CommandError> {
    let answer = parse(line)?;
    if out.is_json() { out.line(answer) } else { out.text(&facts::render(&answer)) }
}

fn parse(json: &str) -> Result<Value, CommandError> {
    serde_json::from_str(json).map_err(|e| {
        CommandError::new(Exit::Failed, "result", format!("the result is no JSON: {e}"), "report this with the version")
    })
}

/// Adds the conflicts that nobody has decided yet to a refusal.
fn with_conflicts(branch: &dyn BranchAccess, mut failure: CommandError) -> CommandError {
    if failure.exit == Exit::Refused
        && let Ok(conflicts) = branch.document(Document::Conflicts)
    {
        failure.conflicts = open_conflicts(&conflicts);
    }
    failure
}

fn open_conflicts(lines: &str) -> Vec<Value> {
    let conflicts = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    conflicts.filter(|conflict| conflict.get("decision").is_none_or(Value::is_null)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_undecided_conflicts_stand_in_the_way() {
        let lines = "{\"id\":\"a\",\"decision\":\"child\"}\n{\"id\":\"b\",\"decision\":null}\n";
        let open = open_conflicts(lines);
        assert_eq!((open.len(), &open[0]["id"]), (1, &Value::from("b")));
    }
}
