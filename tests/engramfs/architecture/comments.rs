//! Names in the backticks of comments that the code does not have, such as those of what was renamed.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::names::quoted;
use super::source::{Source, is_word, words};

/// The words that declare a type.
const TYPE_WORDS: [&str; 5] = ["struct", "enum", "trait", "type", "union"];

/// Every name in backticks in a comment is in the code of the file's module, or is a whole string or the name of a module: users
/// see those. The last part of `Type::item` is in a file that declares the type or has an `impl` of it. Every exception has to be
/// needed.
pub fn stale_names(sources: &[Source], exceptions: &[&str]) -> Vec<String> {
    let names = Names::new(sources);
    let (mut found, mut needless) = (Vec::new(), exceptions.iter().copied().collect::<BTreeSet<&str>>());
    for file in sources {
        for comment in file.comments() {
            for name in quoted(&comment).filter_map(path).filter(|name| !names.has(file, name)) {
                needless.remove(name);
                if !exceptions.contains(&name) {
                    found.push(format!("a comment of {} names {name}, which is not there", file.path));
                }
            }
        }
    }
    found.extend(needless.into_iter().map(|name| format!("needs no exception or is not there: {name}")));
    found
}

/// What names there are, and where.
struct Names<'a> {
    /// The words of each file's code.
    files: Vec<HashSet<&'a str>>,
    /// Those of each module.
    modules: HashMap<&'a str, HashSet<&'a str>>,
    /// The files that declare a type or have an `impl` of it.
    types: HashMap<&'a str, Vec<usize>>,
    /// Strings, and names of modules.
    shown: HashSet<&'a str>,
}

impl<'a> Names<'a> {
    fn new(sources: &'a [Source]) -> Names<'a> {
        let files: Vec<HashSet<&'a str>> = sources.iter().map(|file| words(&file.code).collect()).collect();
        let mut names = Names { files, modules: HashMap::new(), types: HashMap::new(), shown: HashSet::new() };
        for (at, file) in sources.iter().enumerate() {
            names.modules.entry(top(file)).or_default().extend(names.files[at].iter().copied());
            names.shown.extend(file.strings().into_iter().chain(file.module()));
            let code: Vec<&'a str> = words(&file.code).collect();
            for pair in code.windows(2).filter(|pair| TYPE_WORDS.contains(&pair[0])) {
                names.types.entry(pair[1]).or_default().push(at);
            }
        }
        for (at, file) in sources.iter().enumerate() {
            for block in file.code.split("\nimpl").skip(1) {
                for name in words(block.split('{').next().unwrap_or_default()) {
                    if let Some(files) = names.types.get_mut(name) {
                        files.push(at);
                    }
                }
            }
        }
        names
    }

    fn has(&self, file: &Source, name: &str) -> bool {
        let mut parts = name.rsplit("::");
        let (item, owner) = (parts.next().unwrap_or_default(), parts.next());
        let is_in = |module: &HashSet<&str>| module.contains(item);
        match owner.map(|owner| self.types.get(owner)) {
            Some(Some(files)) => files.iter().any(|at| is_in(&self.files[*at])),
            Some(None) => self.shown.contains(item) || self.modules.values().any(is_in),
            None => self.shown.contains(item) || self.modules.get(top(file)).is_some_and(is_in),
        }
    }
}

/// The top module of a file; the roots of the library and the program are modules of their own.
fn top(file: &Source) -> &str {
    file.module().first().copied().unwrap_or_default()
}

/// Returns what is quoted if it is a name or a path of names; a call without arguments counts as the name.
fn path(quoted: &str) -> Option<&str> {
    let path = quoted.trim();
    let path = path.strip_suffix("()").unwrap_or(path);
    let is_name =
        |part: &str| part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && part.chars().all(is_word);
    path.split("::").all(is_name).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::super::source::sources;
    use super::*;

    const CODE: &str =
        "pub struct Store {\n    size: u64,\n}\n\nimpl Store {\n    fn read(&self) { ask(\"merge\") }\n}\n";

    fn findings(comments: &str, exceptions: &[&str]) -> usize {
        let files = [("a/x.rs", CODE.to_owned()), ("a/y.rs", format!("{comments}\nfn there() {{}}\n"))];
        let other = ("b.rs", "fn other() {}\n".to_owned());
        let files = files.into_iter().chain([other]).map(|(path, text)| (path.to_owned(), text));
        stale_names(&sources(files.collect(), &["lib.rs"]), exceptions).len()
    }

    #[test]
    fn a_comment_that_names_what_is_not_there_is_found() {
        let right =
            "/// `there`, `read()`, `b`, `merge`, `Store::size`, `Store::read`, `b::other`, `a b`, `x = 1`, gone";
        assert_eq!(findings(right, &[]), 0);
        for name in ["gone", "other", "gone()", "Store::gone", "Store::there", "Gone::gone", "b::gone"] {
            assert_eq!(findings(&format!("//! A file.\n\n/// Calls `{name}`."), &[]), 1, "{name}");
        }
    }

    #[test]
    fn quotes_go_on_in_the_next_line_and_end_with_the_comment() {
        assert_eq!(findings("// One ` alone.\nfn f() {} // `gone`\n", &[]), 1);
        assert_eq!(findings("// `a\n// b` and `gone`", &[]), 1);
        assert_eq!(findings("/// ```\n/// `gone`\n/// ```", &[]), 0);
        assert_eq!(findings("fn f() { g(\"// `gone`\") }", &[]), 0);
    }

    #[test]
    fn an_exception_has_to_be_needed() {
        assert_eq!(findings("// `O_PATH`", &["O_PATH"]), 0);
        assert_eq!(findings("// `there`", &["there"]), 1);
    }
}
