//! What the comments of functions say of their errors.

use std::collections::BTreeSet;

use super::source::{Source, has_word};

/// What in a comment names a failure, in small letters: "Fails where …", "is refused", "Kind `Gone`", [`Exit::Missing`].
const WORDS: [&str; 7] = ["fail", "refus", "error", "kind `", "kinds ", "exit::", "exit code"];
/// Kinds of `std::io::Error`; the names of other errors are read from the source.
const IO_KINDS: [&str; 7] =
    ["AlreadyExists", "InvalidInput", "IsADirectory", "NotADirectory", "NotFound", "StorageFull", "UnexpectedEof"];

/// Every public function and every method of a public trait that returns a `Result` says in its comment when it fails,
/// or that it never does.
///
/// A comment does so that has one of [`WORDS`], an errno such as ENOENT, or the name of an error in backticks. Whether
/// what it says is true, and all, is for whoever reads it.
pub fn silent(sources: &[Source]) -> Vec<String> {
    let names = sources.iter().flat_map(|file| errors(file.production()).chain(errnos(file.production())));
    let names: BTreeSet<&str> = names.chain(IO_KINDS).collect();
    let mut found = Vec::new();
    for file in sources {
        let silent = fallible(file).into_iter().filter(|(_, comment)| !names_failure(comment, &names));
        found.extend(silent.map(|(name, _)| format!("{name} in {} does not say when it fails", file.path)));
    }
    found
}

/// The variants of enums of errors, which are at the left edge of a file.
fn errors(code: &str) -> impl Iterator<Item = &str> {
    let enums = code.split("enum ").skip(1).filter(|text| {
        let name = text.split([' ', '<']).next().unwrap_or_default();
        name == "Kind" || name.ends_with("Error")
    });
    let lines = enums.flat_map(|text| text.split("\n}").next().unwrap_or_default().lines());
    lines.filter_map(|line| {
        let name = line.strip_prefix("    ")?.split(|c: char| !c.is_alphanumeric()).next()?;
        name.starts_with(char::is_uppercase).then_some(name)
    })
}

/// The errnos that code names, such as ENOENT.
fn errnos(code: &str) -> impl Iterator<Item = &str> {
    let named = ["Errno::", "libc::"].into_iter().flat_map(|path| code.split(path).skip(1));
    named.filter_map(|rest| rest.split(|c: char| !c.is_alphanumeric()).next()).filter(|name| is_errno(name))
}

fn is_errno(name: &str) -> bool {
    name.starts_with('E') && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit())
}

/// The public functions of a file that return a `Result`, and their comments.
fn fallible(file: &Source) -> Vec<(&str, String)> {
    let (code, mut at) = (file.production(), 0);
    let (mut found, mut end_of_trait) = (Vec::new(), None);
    for line in code.split_inclusive('\n') {
        let (start, trimmed) = (at, line.trim());
        at += line.len();
        let (is_public, item) = item(trimmed);
        if is_public && item.starts_with("trait ") && item.ends_with('{') {
            end_of_trait = Some(line.replace(trimmed, "}"));
        } else if end_of_trait.as_deref() == Some(line) {
            end_of_trait = None;
        }
        let Some(function) = item.strip_prefix("fn ").filter(|_| is_public || end_of_trait.is_some()) else { continue };
        // From its name on, over as many lines as it takes.
        let signature = &code[start + line.trim_end().len() - function.len()..];
        if returned(signature).is_some_and(|kind| has_word(kind, "Result")) {
            let name = function.split(['(', '<']).next().unwrap_or(function);
            found.push((name, comment(&file.text[..start])));
        }
    }
    found
}

/// Returns whether an item is public, and the item without what stands before `fn` or `trait`.
fn item(line: &str) -> (bool, &str) {
    let (is_public, rest) = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => (true, rest.split_once(") ").map_or(rest, |(_, item)| item)),
        Some(rest) => (true, rest.trim_start()),
        None => (false, line),
    };
    let words = ["const ", "async ", "unsafe "];
    (is_public, words.into_iter().fold(rest, |rest, word| rest.strip_prefix(word).unwrap_or(rest)))
}

/// Returns the type that a function returns, whose signature is formatted and begins with its name.
fn returned(signature: &str) -> Option<&str> {
    let end = ["{", ";\n", "where\n"].iter().filter_map(|end| signature.find(end)).min();
    let (head, mut depth) = (&signature[..end.unwrap_or(signature.len())], 0);
    for (at, c) in head.char_indices() {
        match c {
            '-' if depth == 0 => return head[at..].strip_prefix("->"),
            '(' | '[' | '<' => depth += 1,
            '>' if head[..at].ends_with('-') => {}
            ')' | ']' | '>' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Returns the comment at the end of a text, which attributes may follow.
fn comment(above: &str) -> String {
    // Between the comment and the function there are attributes alone, and where there is none the item before it ends.
    let is_attribute =
        |line: &&str| !(line.is_empty() || line.ends_with(['{', '}', ';']) || line.trim_start().starts_with("///"));
    let lines = above.lines().rev().skip_while(is_attribute);
    let comment: Vec<&str> = lines.map_while(|line| line.trim_start().strip_prefix("///")).collect();
    comment.into_iter().rev().collect()
}

fn names_failure(comment: &str, names: &BTreeSet<&str>) -> bool {
    let small = comment.to_lowercase();
    let parts: Vec<&str> = comment.split('`').collect();
    // In brackets it is a link, maybe to a type of that name that is no error.
    let quoted = |parts: &[&str]| names.contains(parts[1]) && !parts[0].ends_with('[');
    WORDS.iter().any(|word| small.contains(word))
        || comment.split(|c: char| !c.is_alphanumeric()).any(|word| is_errno(word) && names.contains(word))
        || parts.windows(2).step_by(2).any(quoted)
}

#[cfg(test)]
mod tests {
    use super::super::source::sources;
    use super::silent;

    fn found(code: &str) -> Vec<String> {
        let enums = "pub enum Kind {\n    /// One.\n    Gone,\n    Full(u8),\n}\npub enum Part {\n    Whole,\n}\nuse Errno::ENOENT;\n";
        let files = [("lib.rs", "mod a;"), ("a.rs", &(enums.to_owned() + code))];
        silent(&sources(files.map(|(path, text)| (path.to_owned(), text.to_owned())).to_vec(), &["lib.rs"]))
    }

    #[test]
    fn a_comment_that_names_a_failure_is_enough() {
        for comment in ["Fails at once.", "It is refused.", "[`E::IoError`].", "ENOENT.", "`Gone`.", "Never fails."] {
            let code =
                format!("/// {comment}\n#[must_use]\n#[expect(\n    a,\n    b\n)]\npub fn f() -> Result<(), E> {{}}\n");
            assert!(found(&code).is_empty(), "{comment}");
        }
        for comment in ["Does it.", "The END of it.", "`Whole`.", "[`Gone`].", "Gone."] {
            let code = format!("/// {comment}\n#[must_use]\npub fn f() -> Result<(), E> {{}}\n");
            assert_eq!(found(&code), ["f in a.rs does not say when it fails"], "{comment}");
        }
    }

    #[test]
    fn functions_are_found_that_others_call_and_that_return_a_result() {
        for code in [
            "pub fn f() -> io::Result<()> {}",
            "pub(in crate::b) const fn f<F: Fn() -> u8>(\n    x: [u8; 2],\n) -> Option<Result<u8, E>>\nwhere\n    F: A,\n{",
            "pub(super) trait T {\n    fn f(&self) -> Result<(), E>;\n}",
            "    pub async unsafe fn f(act: impl Fn() -> u8) -> Result<u8, E> {}",
        ] {
            assert_eq!(found(code).len(), 1, "{code}");
        }
        for code in [
            "fn f() -> Result<(), E> {}",
            "pub fn f(act: impl Fn() -> Result<(), E>) -> CandidateResult {\n    g() -> Result",
            "pub fn f<F>(act: F)\nwhere\n    F: Fn() -> Result<(), E>,\n{",
            "trait T {\n    fn f(&self) -> Result<(), E>;\n}",
            "pub trait T {\n    fn f(&self);\n}\nimpl T for X {\n    fn f(&self) -> Result<(), E> {}\n}",
            "#[cfg(test)]\nmod tests {\n    pub fn f() -> Result<(), E> {}\n}",
        ] {
            assert!(found(code).is_empty(), "{code}");
        }
    }
}
