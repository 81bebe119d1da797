//! `engramfs man`: the manual page.

use std::io;

use clap_mangen::Man;
use serde_json::json;

use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::Output;

/// Prints the manual page of the whole tool or of one verb, as roff.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs man | man -l -
  engramfs man merge > /usr/local/share/man/man1/engramfs-merge.1")]
pub struct Args {
    /// The verb; without it, the tool.
    verb: Option<String>,
}

/// Prints a manual page, as JSON in `roff`: that of one verb, or of the program. `command` describes the whole command line. The exit code
/// is 2 for a verb that does not exist.
pub fn run(args: &Args, mut command: clap::Command, out: &mut Output) -> Result<Exit, CommandError> {
    command.build();
    let page = match &args.verb {
        None => command,
        Some(verb) => command.find_subcommand(verb).cloned().ok_or_else(|| {
            CommandError::usage(format!("there is no verb {verb:?}"), "see `engramfs --help` for all of them")
        })?,
    };
    let roff = render(page).map_err(|e| CommandError::output(&e))?;
    if out.is_json() {
        out.line(json!({ "verb": args.verb, "roff": String::from_utf8_lossy(&roff) }))?;
    } else {
        out.bytes(&roff)?;
    }
    Ok(Exit::Done)
}

/// Renders a page; the examples come before the options, as in the help. It writes to memory, which does not fail.
pub fn render(page: clap::Command) -> io::Result<Vec<u8>> {
    let examples = page.get_before_help().map(|text| verbatim("EXAMPLES", &text.to_string())).unwrap_or_default();
    let notes = page.get_after_help().map(|text| verbatim("NOTES", &text.to_string())).unwrap_or_default();
    let has_verbs = page.has_subcommands();
    let man = Man::new(page);
    let mut roff = Vec::new();
    man.render_title(&mut roff)?;
    man.render_name_section(&mut roff)?;
    man.render_synopsis_section(&mut roff)?;
    man.render_description_section(&mut roff)?;
    roff.extend(examples.into_bytes());
    man.render_options_section(&mut roff)?;
    if has_verbs {
        man.render_subcommands_section(&mut roff)?;
    }
    roff.extend(notes.into_bytes());
    Ok(roff)
}

/// Returns a section whose lines stay as they are; the generator leaves out the text before the help, and fills the
/// text after it.
fn verbatim(title: &str, text: &str) -> String {
    let lines = text.lines().skip_while(|line| line.starts_with("Examples:"));
    // A backslash begins roff's own escapes, a bare hyphen may become a typographic one.
    let lines = lines.map(|line| line.replace('\\', "\\e").replace('-', "\\-") + "\n");
    format!(".SH {title}\n.nf\n{}.fi\n", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_can_be_copied_out_of_the_page() {
        let section = verbatim("EXAMPLES", "Examples:\n  engramfs fork --from v1 a\\b");
        assert_eq!(section, ".SH EXAMPLES\n.nf\n  engramfs fork \\-\\-from v1 a\\eb\n.fi\n");
    }
}
