//! What a verb takes, and what it was given.

use crate::memory::{Error, Revision, check_name};

/// One argument of a verb: the grammar of `ctl`, the command's option and its help all follow from it.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    /// Its placeholder in usage lines, such as `LABEL`; of a flag the flag itself. Unique within a verb.
    pub name: &'static str,
    /// What it is for, as the help of the command says, without a period.
    pub help: &'static str,
    /// How it is written in a line; the command's options follow from it.
    pub form: ArgumentForm,
    /// Whether it is the name of a branch or a checkpoint, which [`Arguments::check_names`] checks.
    pub is_name: bool,
    /// Whether it names a state of the branch: a label, an entry or a time.
    pub is_revision: bool,
    accepts: fn(&str) -> bool,
    /// What a value is that is not accepted, and what to write instead.
    rejection: (&'static str, &'static str),
}

/// How an argument is written: first the words, then options, then what goes to the line's end. A word with blanks is a JSON string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentForm {
    /// One word, which has to be there.
    Word,
    /// One word that does not begin with two dashes, or nothing.
    OptionalWord,
    /// One or more words, or one JSON string. Each later argument still gets its word.
    Phrase,
    /// Nothing, or all up to the end, which may be a JSON string as a whole.
    Text,
    /// This word and one more, or neither. The command has it as an option, two dashes in front.
    Option(&'static str),
    /// The argument's name, or nothing.
    Flag,
    /// One word or more.
    Words,
    /// Nothing, or `--` and one word or more.
    List,
    /// Nothing, or `--` and what [`ArgumentForm::Text`] takes, which has to be there.
    Note,
}

impl Argument {
    const fn new(name: &'static str, form: ArgumentForm, help: &'static str) -> Argument {
        let (accepts, rejection): (fn(&str) -> bool, _) = (|_| true, ("", ""));
        Argument { name, help, form, is_name: false, is_revision: false, accepts, rejection }
    }

    /// Returns an argument of one word, without which the verb is refused. Any value is accepted.
    pub const fn word(name: &'static str, help: &'static str) -> Argument {
        Argument::new(name, ArgumentForm::Word, help)
    }

    /// Returns an argument of one word or none; a word with two dashes in front is left to options.
    pub const fn optional_word(name: &'static str, help: &'static str) -> Argument {
        Argument::new(name, ArgumentForm::OptionalWord, help)
    }

    /// Returns an argument of words up to those behind it, each of which must be [`Argument::word`].
    pub const fn phrase(name: &'static str, help: &'static str) -> Argument {
        Argument::new(name, ArgumentForm::Phrase, help)
    }

    /// Returns an argument that goes to the end of the line, blanks included; it may be empty.
    pub const fn text(name: &'static str, help: &'static str) -> Argument {
        Argument::new(name, ArgumentForm::Text, help)
    }

    /// Returns an argument of one word behind `word`; both may be left out.
    pub const fn option(word: &'static str, name: &'static str, help: &'static str) -> Argument {
        Argument::new(name, ArgumentForm::Option(word), help)
    }

    /// Returns a flag, given by its name, such as `--dry-run`, and without a value.
    pub const fn flag(name: &'static str, help: &'static str) -> Argument {
        Argument::new(name, ArgumentForm::Flag, help)
    }

    /// Returns an argument of at least one word, up to the next option.
    pub const fn words(name: &'static str, help: &'static str) -> Argument {
        Argument::new(name, ArgumentForm::Words, help)
    }

    /// Returns an argument of a text behind `--`, blanks included, to the end of the line; none if there is no `--`.
    pub const fn note(name: &'static str, help: &'static str) -> Argument {
        Argument::new(name, ArgumentForm::Note, help)
    }

    /// Returns an argument of words behind `--`, to the end of the line; none if there is no `--`.
    pub const fn list(name: &'static str, help: &'static str) -> Argument {
        Argument::new(name, ArgumentForm::List, help)
    }

    /// Marks it as the name of a branch or checkpoint: anything else is refused with [`Error::Name`].
    pub const fn checked_as_name(self) -> Argument {
        Argument { is_name: true, ..self }
    }

    /// Marks it as a state of the branch: anything but a revision is refused with [`Error::Name`].
    pub const fn checked_as_revision(self) -> Argument {
        Argument { is_revision: true, ..self }
    }

    /// Sets which values are accepted, and for all others what is wrong, such as `is no side`, and what to write
    /// instead.
    pub const fn with_check(self, accepts: fn(&str) -> bool, is: &'static str, hint: &'static str) -> Argument {
        Argument { accepts, rejection: (is, hint), ..self }
    }

    /// Refuses a value that the argument does not accept, and none where one is needed. [`ArgumentError`] says which
    /// and what to write.
    pub(super) fn check(&self, arguments: &Arguments) -> Result<(), ArgumentError> {
        let values = arguments.values(self);
        let (what, hint) = self.rejection;
        if let Some(bad) = values.iter().find(|value| !(self.accepts)(value)) {
            return Err(ArgumentError { message: format!("{bad:?} {what}"), hint });
        }
        if values.is_empty() && matches!(self.form, ArgumentForm::Word | ArgumentForm::Phrase | ArgumentForm::Words) {
            return Err(ArgumentError { message: format!("{} is missing", self.name), hint: "write all arguments" });
        }
        Ok(())
    }
}

/// What was written in place of an argument, or that it is missing; [`ArgumentError::hint`] says what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ArgumentError {
    message: String,
    hint: &'static str,
}

impl ArgumentError {
    /// Returns what to write instead, a phrase in the imperative.
    pub fn hint(&self) -> &'static str {
        self.hint
    }
}

/// The arguments that a verb was given, by their names; not checked before [`Verb::new`](super::Verb::new).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments(Vec<(&'static str, Vec<String>)>);

impl Arguments {
    /// Gives an argument its value; a list has several, a flag that is set an empty one.
    pub fn set(&mut self, argument: &Argument, values: Vec<String>) {
        self.0.retain(|(name, _)| *name != argument.name);
        self.0.push((argument.name, values));
    }

    /// Returns all values of an argument, several for words and lists; empty if it was not given.
    pub fn values(&self, argument: &Argument) -> &[String] {
        self.0.iter().find(|(name, _)| *name == argument.name).map_or(&[], |(_, values)| values)
    }

    /// Returns the first value of an argument; `None` if it was not given.
    pub fn get(&self, argument: &Argument) -> Option<&str> {
        self.values(argument).first().map(String::as_str)
    }

    /// Returns the value of an argument that a verb can't be without: `Verb::new` has refused arguments without it.
    pub fn required(&self, argument: &Argument) -> &str {
        self.get(argument).expect("Verb::new refuses arguments that lack it")
    }

    /// Returns whether an argument was given at all, such as a flag.
    pub fn is_set(&self, argument: &Argument) -> bool {
        !self.values(argument).is_empty()
    }

    /// Refuses a value that is meant as a name and is none, before it means something else in a line: [`Error::Name`].
    pub fn check_names(&self, arguments: &[Argument]) -> Result<(), Error> {
        for argument in arguments {
            for value in self.values(argument) {
                match argument {
                    Argument { is_name: true, .. } => check_name(value)?,
                    Argument { is_revision: true, .. } => drop(Revision::parse(value)?),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}
