//! Samples of errors: the tests of codes and hints see only variants that have one.

use super::source::{Source, has_word, words};

/// Where errors and their samples are: in the code there, and in the tests.
const PLACES: [&str; 2] = ["memory/error/", "fs/refusal.rs"];

/// Every variant of an enum of errors has a sample in the tests beside it. Of one that holds an error of another enum, any of that
/// one will do.
pub fn missing(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for place in PLACES {
        let files: Vec<&Source> = sources.iter().filter(|file| file.path.starts_with(place)).collect();
        let samples: String = files.iter().map(|file| &file.code[file.production().len()..]).collect();
        let variants: Vec<(&str, &str)> = files.iter().flat_map(|file| variants(file.production())).collect();
        if variants.is_empty() {
            found.push(format!("{place} has no errors"));
        }
        for (name, line) in variants.into_iter().filter(|(name, line)| !has_sample(name, line, &samples)) {
            found.push(format!("there is no sample of {name}::{}", words(line).next().unwrap_or_default()));
        }
    }
    found
}

/// The enums of errors, each with the lines in which its variants begin.
fn variants(code: &str) -> impl Iterator<Item = (&str, &str)> {
    let enums = code.split(" enum ").skip(1).filter_map(|text| Some((words(text).next()?, text)));
    enums.filter(|(name, _)| is_error(name)).flat_map(|(name, text)| {
        let lines = text.split("\n}").next().unwrap_or_default().lines();
        let begins = |line: &&str| line.strip_prefix("    ").is_some_and(|line| line.starts_with(char::is_uppercase));
        lines.filter(begins).map(move |line| (name, line))
    })
}

fn is_error(name: &str) -> bool {
    name.ends_with("Error") || name.ends_with("Refusal")
}

fn has_sample(name: &str, line: &str, samples: &str) -> bool {
    let mut names = words(line);
    let variant = names.next().unwrap_or_default();
    has_word(samples, &format!("{name}::{variant}"))
        || names.any(|held| held != "Error" && is_error(held) && samples.contains(&format!("{held}::")))
}

#[cfg(test)]
mod tests {
    use super::super::source::sources;
    use super::*;

    const ERRORS: &str = "#[cfg(test)]\nmod tests;\n\npub enum Error {\n    /// Gone.\n    Gone,\n    Disk {\n        source: io::Error,\n    },\n    Codec(CodecError),\n}\n\npub enum Kind {\n    Io,\n}\n";

    fn findings(samples: &str, refusals: &str) -> Vec<String> {
        let refusals = format!("pub enum Refusal {{\n    Fixed,\n}}\n\n#[cfg(test)]\nmod tests {{\n{refusals}\n}}\n");
        let files =
            [("memory/error/mod.rs", ERRORS), ("memory/error/tests.rs", samples), ("fs/refusal.rs", refusals.as_str())];
        let files = files.into_iter().map(|(path, text)| (path.to_owned(), text.to_owned()));
        missing(&sources(files.collect(), &["lib.rs"]))
    }

    #[test]
    fn a_variant_without_a_sample_is_found() {
        let all = "Error::Gone, Error::Disk { source }, CodecError::Short.into()";
        assert!(findings(all, "Refusal::Fixed").is_empty());
        for wrong in ["Error::Gone, ", "Error::Disk { source }, ", "CodecError::Short.into()"] {
            assert_eq!(findings(&all.replace(wrong, ""), "Refusal::Fixed").len(), 1, "{wrong}");
        }
        assert_eq!(findings(&all.replace("Error::Gone", "SignalError::Gone"), "Refusal::Fixed").len(), 1);
        assert_eq!(findings(&format!("{all}, Refusal::Fixed"), ""), ["there is no sample of Refusal::Fixed"]);
        assert_eq!(missing(&[]).len(), PLACES.len());
    }
}
