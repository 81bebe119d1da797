//! Lines of `ctl`: parsed, written and explained by the arguments that a verb takes.

use super::fork::FROM_DISCARDED;
use super::{Argument, ArgumentForm, Arguments, VerbSpec};

/// Parses the rest of a line behind its verb; `None` if it lacks an argument or has more than that.
pub(super) fn parse(arguments: &'static [Argument], mut rest: &str) -> Option<Arguments> {
    let mut found = Arguments::default();
    for (at, argument) in arguments.iter().enumerate() {
        let value = match argument.form {
            ArgumentForm::Word => take_item(&mut rest)?,
            ArgumentForm::Phrase => take_phrase(&mut rest, arguments.len() - at - 1)?,
            ArgumentForm::OptionalWord if rest.is_empty() || rest.starts_with("--") => continue,
            ArgumentForm::OptionalWord => take_item(&mut rest)?,
            ArgumentForm::Text if rest.is_empty() => continue,
            ArgumentForm::Text => take_text(&mut rest),
            ArgumentForm::Words
            | ArgumentForm::Option(_)
            | ArgumentForm::Flag
            | ArgumentForm::List
            | ArgumentForm::Note => {
                return parse_options(&arguments[at..], rest, found);
            }
        };
        found.set(argument, vec![value]);
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
            ArgumentForm::List | ArgumentForm::Note => word == "--",
            ArgumentForm::Word
            | ArgumentForm::OptionalWord
            | ArgumentForm::Phrase
            | ArgumentForm::Text
            | ArgumentForm::Words => false,
        })?;
        let value = match option.form {
            ArgumentForm::Option(_) => vec![take_item(&mut rest)?],
            ArgumentForm::List | ArgumentForm::Note if rest.is_empty() => return None,
            ArgumentForm::List => take_items(&mut rest)?,
            ArgumentForm::Note => vec![take_text(&mut rest)],
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

/// Takes all items that are left.
fn take_items(rest: &mut &str) -> Option<Vec<String>> {
    let mut items = Vec::new();
    while !rest.is_empty() {
        items.push(take_item(rest)?);
    }
    Some(items)
}

/// Takes all that is left as it is, unless the whole of it is a JSON string.
fn take_text(rest: &mut &str) -> String {
    let text = std::mem::take(rest);
    let string = text.starts_with('"').then(|| serde_json::from_str(text).ok()).flatten();
    string.unwrap_or_else(|| text.to_owned())
}

fn take_word<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let (word, behind) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    *rest = behind.trim_start();
    (!word.is_empty()).then_some(word)
}

/// Takes all but the last `words` words, and leaves those in `rest`; `None` if nothing would be taken, or a double
/// quote begins what is no JSON string.
fn take_phrase(rest: &mut &str, words: usize) -> Option<String> {
    let mut phrase = *rest;
    for _ in 0..words {
        phrase = phrase.rsplit_once(char::is_whitespace)?.0.trim_end();
    }
    *rest = rest[phrase.len()..].trim_start();
    match phrase.starts_with('"') {
        true => serde_json::from_str(phrase).ok(),
        false => (!phrase.is_empty()).then(|| phrase.to_owned()),
    }
}

/// Writes a verb with its arguments as a line of `ctl`, in the order of its spec: [`parse`] finds the same values in it, whatever
/// they are.
pub(super) fn write(spec: &VerbSpec, given: &Arguments) -> String {
    let mut line = spec.name.to_owned();
    for argument in spec.arguments.iter().filter(|argument| given.is_set(argument)) {
        let values = given.values(argument);
        let joined = |write: fn(&str) -> String| values.iter().map(|value| write(value)).collect::<Vec<_>>().join(" ");
        line += &match &argument.form {
            ArgumentForm::Word => format!(" {}", joined(write_word)),
            ArgumentForm::OptionalWord | ArgumentForm::Words => format!(" {}", joined(write_item)),
            ArgumentForm::Phrase | ArgumentForm::Text => format!(" {}", write_text(&values.join(" "))),
            ArgumentForm::Option(word) => match joined(write_word) {
                // These two words would introduce another option.
                value if format!("{word}-{value}") == FROM_DISCARDED => format!(" {word} {}", quote(&value)),
                value => format!(" {word} {value}"),
            },
            ArgumentForm::Flag => format!(" {}", argument.name),
            ArgumentForm::List => format!(" -- {}", joined(write_word)),
            ArgumentForm::Note => format!(" -- {}", write_text(&values.join(" "))),
        };
    }
    line
}

/// Writes a word, as a JSON string where it would be read as something else.
fn write_word(word: &str) -> String {
    let is_plain = !word.is_empty() && !word.contains(char::is_whitespace) && !word.starts_with('"');
    if is_plain { word.to_owned() } else { quote(word) }
}

/// Writes a word that may have options behind it, so that it must not look like one.
fn write_item(item: &str) -> String {
    if item.starts_with("--") { quote(item) } else { write_word(item) }
}

/// Writes a text, as a JSON string where blanks at its ends would go, or a line end in it would begin another verb.
fn write_text(text: &str) -> String {
    let is_plain = !text.is_empty() && text.trim() == text && !text.contains(['\n', '\r']) && !text.starts_with('"');
    if is_plain { text.to_owned() } else { quote(text) }
}

fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
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
            ArgumentForm::Note => format!(" [-- {name}]"),
        };
    }
    usage
}
