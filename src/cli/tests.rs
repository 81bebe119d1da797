//! The command line as a whole: parsing, help, manual and completions.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use clap::{Command, CommandFactory, Parser};

use super::{Cli, Verb};
use crate::verb::CliForm;

fn command() -> Command {
    let mut command = Cli::command();
    command.build();
    command
}

fn verbs() -> Vec<Command> {
    command().get_subcommands().cloned().collect()
}

#[test]
fn the_definitions_are_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_verb_has_two_or_three_examples_before_all_else_in_its_help() {
    for mut verb in verbs() {
        let help = verb.render_long_help().to_string();
        assert!(help.starts_with("Examples:\n"), "{help}");
        let usage = help.split("Usage:").next().unwrap();
        let count = usage.matches(&format!("engramfs {}", verb.get_name())).count();
        assert!((2..=4).contains(&count), "{} has {count} examples", verb.get_name());
    }
}

#[test]
fn every_verb_of_the_contract_is_there() {
    let found: Vec<String> = verbs().iter().map(|verb| verb.get_name().to_owned()).collect();
    let of_table = crate::verb::VERBS.iter().filter(|spec| matches!(spec.command, CliForm::FromTable(_)));
    let contract: Vec<&str> =
        "init mount umount doctor import export".split(' ').chain(of_table.map(|spec| spec.name)).collect();
    let others = "status branches diff log query wait gate guard explore run eval gc verify backup restore clock archive completions man";
    assert_eq!(found, [contract, others.split(' ').collect()].concat());
}

#[test]
fn the_table_of_verbs_says_which_of_them_are_commands() {
    for spec in crate::verb::VERBS {
        let found = verbs().into_iter().find(|verb| verb.get_name() == spec.name);
        assert_eq!(found.is_some(), !matches!(spec.command, CliForm::None), "{}", spec.name);
        let of_table = matches!(spec.command, CliForm::FromTable(_));
        for argument in spec.arguments.iter().filter(|_| of_table) {
            let taken = found.as_ref().unwrap().get_arguments().any(|taken| taken.get_id() == argument.name);
            assert!(taken, "{} {}", spec.name, argument.name);
        }
    }
}

#[test]
fn every_argument_is_explained() {
    for verb in verbs() {
        for argument in verb.get_arguments() {
            assert!(argument.get_help().is_some(), "{} {}", verb.get_name(), argument.get_id());
        }
    }
}

#[test]
fn json_may_stand_before_or_after_the_verb() {
    for line in [["engramfs", "--json", "status", "t"], ["engramfs", "status", "t", "--json"]] {
        let cli = Cli::try_parse_from(line).unwrap();
        assert!(cli.json && matches!(cli.verb, Verb::Status(_)));
    }
}

#[test]
fn wrong_use_is_exit_code_2_and_help_is_0() {
    let code = |line: &[&str]| Cli::try_parse_from(line).err().unwrap().exit_code();
    assert_eq!(code(&["engramfs"]), 2);
    assert_eq!(code(&["engramfs", "no-such-verb"]), 2);
    assert_eq!(code(&["engramfs", "gc", "s", "--older-than", "soon"]), 2);
    assert_eq!(code(&["engramfs", "verify", "s", "--expect-tip", "12"]), 2);
    assert_eq!(code(&["engramfs", "mount", "s", "m", "--foreground", "--log", "f"]), 2);
    assert_eq!(code(&["engramfs", "fork", "--help"]), 0);
}

#[test]
fn a_query_may_be_several_words_and_leaves_the_options_alone() {
    for query in [&["how", "many"][..], &["-"]] {
        let line = [&["engramfs", "query", "t"], query, &["--k", "3", "--json"]].concat();
        let cli = Cli::try_parse_from(line).unwrap();
        assert!(cli.json && matches!(cli.verb, Verb::Query(args) if args.query == query && args.k == Some(3)));
    }
    let cli = Cli::try_parse_from(["engramfs", "query", "t", "--", "-5", "degrees"]).unwrap();
    assert!(matches!(cli.verb, Verb::Query(args) if args.query == ["-5", "degrees"]));
}

#[test]
fn the_manual_has_a_page_for_the_tool_and_for_each_verb() {
    for page in verbs().into_iter().chain([command()]) {
        let name = page.get_name().to_owned();
        let roff = String::from_utf8(super::man::render(page).unwrap()).unwrap();
        assert!(roff.contains(".SH NAME") && roff.contains(".SH EXAMPLES\n.nf\n  engramfs"), "{name}");
    }
}

#[test]
fn completions_know_the_verbs() {
    for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish] {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "engramfs", &mut script);
        assert!(String::from_utf8(script).unwrap().contains("checkpoint"));
    }
}
