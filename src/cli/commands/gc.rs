//! `engramfs gc`: lets go what nobody keeps any longer.

use std::path::PathBuf;
use std::time::Duration;

use jiff::{Span, SpanRelativeTo};

use super::verbs::print_facts;
use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::Output;
use crate::cli::target::{Access, Target};
use crate::verb::Verb;

/// Lets go what nobody keeps: orphaned branches, expired files, segments that nothing leads to.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs gc ~/memory
  engramfs gc /mnt/memory --older-than 7d --dry-run")]
pub struct Args {
    /// A store that is not mounted, or a mount.
    place: PathBuf,
    /// Lets only those branches go that were not written for so long, such as 90m, 24h or 7d.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    older_than: Option<Duration>,
    /// Says what would go, and changes nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Collects garbage in a store, or tells what would go, and prints what went. Fails like `gc`, or if the store is in
/// use by another process.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let verb = Verb::parse(&line(args)).expect("gc takes an age and a dry run");
    let answer = Target::for_store(&args.place)?.with_branch(Access::Write, |branch| branch.run(&verb))?;
    print_facts(&answer.to_line(), out)?;
    Ok(Exit::Done)
}

/// Returns the line that asks for it in `ctl`.
fn line(args: &Args) -> String {
    let age = args.older_than.map(|age| match age.subsec_nanos() {
        0 => format!(" --older-than {}s", age.as_secs()),
        nanos => format!(" --older-than {}s{nanos}ns", age.as_secs()),
    });
    format!("gc{}{}", age.unwrap_or_default(), if args.dry_run { " --dry-run" } else { "" })
}

/// Reads a time such as `24h` or `7d`, with units up to weeks, for clap: the error is what it prints.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let span: Span = text.parse().map_err(|e| format!("{e}"))?;
    let exact = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|e| format!("{e}"))?;
    Duration::try_from(exact).map_err(|_| "a time can't be negative".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_up_to_weeks() {
        assert_eq!(parse_duration("24h"), Ok(Duration::from_secs(86_400)));
        assert_eq!(parse_duration("7d"), Ok(Duration::from_secs(7 * 86_400)));
        assert_eq!(parse_duration("0s"), Ok(Duration::ZERO));
        assert!(parse_duration("-1h").is_err() && parse_duration("7").is_err() && parse_duration("soon").is_err());
    }
}
