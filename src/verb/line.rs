//! Lines of `ctl`: parsed, written and explained by the arguments that a verb takes.

use super::fork::FROM_DISCARDED;
use super::{Argument, ArgumentForm, Arguments, VerbSpec};

/// Parses the rest of a line behind its verb; none where it lacks an argument or has more than that.
pub(super) fn parse(arguments: &'static [Argument], mut rest: &str) -> Option<Arguments> {
    let mut found = Arguments::default();
    for (at, argument) in arguments.iter().enumerate() {
        let value = match argument.form {
            ArgumentForm::Word => take_word(&mut rest)?,
            ArgumentForm::Phrase => take_phrase(&mut rest, arguments.len() - at - 1)?,
            ArgumentForm::OptionalWord if rest.is_empty() || rest.starts_with("--") => continue,
            ArgumentForm::OptionalWord => take_word(&mut rest)?,
            ArgumentForm::Text if rest.is_empty() => continue,
            ArgumentForm::Text => std::mem::take(&mut rest),
            ArgumentForm::Words | ArgumentForm::Option(_) | ArgumentForm::Flag | ArgumentForm::List => {
                return parse_options(&arguments[at..], rest, found);
            }
        };
        found.set(argument, vec![value.to_owned()]);
    }
    rest.is_empty().then_some(found)
}

/// Options may come in any order, before, between and behind words.
fn parse_options(options: &[Argument], mut rest: &str, mut found: Arguments) -> Option<Arguments> {
    let words = options.iter().find(|option| option.form == ArgumentForm::Words);
    while !rest.is_empty() {
        if let Some(words) = words.filter(|_| !rest.starts_with("--")) {
            let more = take_item(&mut rest)?;
            found.set(words, [found.values(words), &[more]].concat());
            continue;
        }
        let word = take_option_word(options, &mut rest)?;
        let word = &*word;
        let option = options.iter().find(|option| match option.form {
            ArgumentForm::Option(introduction) => introduction == word,
            ArgumentForm::Flag => option.name == word,
            ArgumentForm::List => word == "--",
            ArgumentForm::Word
            | ArgumentForm::OptionalWord
            | ArgumentForm::Phrase
            | ArgumentForm::Text
            | ArgumentForm::Words => false,
        })?;
        let value = match option.form {
            ArgumentForm::Option(_) => vec![take_word(&mut rest)?.to_owned()],
            ArgumentForm::List if rest.is_empty() => return None,
            ArgumentForm::List => std::mem::take(&mut rest).split_whitespace().map(str::to_owned).collect(),
            _ => vec![String::new()],
        };
        // Options with dashes may be repeated, and the last counts; words can't.
        if found.is_set(option) && !word.starts_with("--") {
            return None;
        }
        found.set(option, value);
    }
    Some(found)
}

/// Takes the word that introduces an option: `from-discarded` may be written as two words, with the value behind them.
fn take_option_word(options: &[Argument], rest: &mut &str) -> Option<String> {
    let word = take_word(rest)?;
    let mut behind = *rest;
    if let Some(second) = take_word(&mut behind).filter(|_| !behind.is_empty()) {
        let both = format!("{word}-{second}");
        if options.iter().any(|option| option.form == ArgumentForm::Option(FROM_DISCARDED) && both == FROM_DISCARDED) {
            *rest = behind;
            return Some(both);
        }
    }
    Some(word.to_owned())
}

/// Takes a word, or a JSON string, which may have blanks in it.
fn take_item(rest: &mut &str) -> Option<String> {
    if !rest.starts_with('"') {
        return take_word(rest).map(str::to_owned);
    }
    let mut strings = serde_json::Deserializer::from_str(rest).into_iter::<String>();
    let item = strings.next()?.ok()?;
    let behind = rest.get(strings.byte_offset()..)?;
    *rest = behind.trim_start();
    (rest.is_empty() || rest.len() < behind.len()).then_some(item)
}

/// Writes a word, as a JSON string where it would be read as something else.
fn write_item(item: &str) -> String {
    let is_plain = !item.contains(char::is_whitespace) && !item.starts_with(['"', '-']);
    if is_plain { item.to_owned() } else { serde_json::Value::from(item).to_string() }
}

fn take_word<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let (word, behind) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    *rest = behind.trim_start();
    (!word.is_empty()).then_some(word)
}

/// Takes all but the last `words` words, and leaves those in `rest`; none where nothing would be taken.
fn take_phrase<'a>(rest: &mut &'a str, words: usize) -> Option<&'a str> {
    let mut phrase = *rest;
    for _ in 0..words {
        phrase = phrase.rsplit_once(char::is_whitespace)?.0.trim_end();
    }
    *rest = rest[phrase.len()..].trim_start();
    (!phrase.is_empty()).then_some(phrase)
}

/// Writes a verb with its arguments as a line of `ctl`, in the order of its spec. Line ends in values become blanks.
pub(super) fn write(spec: &VerbSpec, given: &Arguments) -> String {
    let mut line = spec.name.to_owned();
    for argument in spec.arguments.iter().filter(|argument| given.is_set(argument)) {
        let value = given.values(argument).join(" ");
        line += &match argument.form {
            ArgumentForm::Word | ArgumentForm::OptionalWord | ArgumentForm::Phrase | ArgumentForm::Text => {
                format!(" {value}")
            }
            ArgumentForm::Words => {
                format!(" {}", given.values(argument).iter().map(|item| write_item(item)).collect::<Vec<_>>().join(" "))
            }
            ArgumentForm::Option(word) => format!(" {word} {value}"),
            ArgumentForm::Flag => format!(" {}", argument.name),
            ArgumentForm::List => format!(" -- {value}"),
        };
    }
    // A line end within a value would begin another verb.
    line.replace(['\n', '\r'], " ")
}

/// Returns how a verb is written, as in `fork NAME [from LABEL]`.
pub(super) fn usage(spec: &VerbSpec) -> String {
    let mut usage = spec.name.to_owned();
    for Argument { name, form, .. } in spec.arguments {
        usage += &match form {
            ArgumentForm::Word | ArgumentForm::Phrase => format!(" {name}"),
            ArgumentForm::Words => format!(" {name} …"),
            ArgumentForm::Text | ArgumentForm::Flag | ArgumentForm::OptionalWord => format!(" [{name}]"),
            ArgumentForm::Option(word) => format!(" [{word} {name}]"),
            ArgumentForm::List => format!(" [-- {name} …]"),
        };
    }
    usage
}
