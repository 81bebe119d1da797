//! Rust source as the checks see it: code without comments and literals, functions, modules.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

/// One source file.
pub struct Source {
    /// Where it is, below the folder that was read.
    pub path: String,
    /// Its bytes as they are.
    pub text: String,
    /// The same with comments and literals blanked; lines stay where they are.
    pub code: String,
    /// Where in `code` the part begins that only tests compile; 0 for a file of tests.
    test_from: usize,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Function<'a> {
    pub name: &'a str,
    /// Lines from `fn` to the closing brace.
    pub lines: usize,
}

impl Source {
    /// Returns the code that is compiled outside tests.
    pub fn production(&self) -> &str {
        &self.code[..self.test_from]
    }

    /// Returns the text of each comment; comments in lines one after the other are one.
    pub fn comments(&self) -> Vec<String> {
        let (mut found, mut end_before) = (Vec::<String>::new(), None::<usize>);
        for span in comments_and_literals(&self.text) {
            let Some(line) = self.text[span.clone()].strip_prefix("//") else { continue };
            let line = line.trim_start_matches(['/', '!']);
            let goes_on = end_before.is_some_and(|end| self.text[end..span.start].trim().is_empty());
            match found.last_mut().filter(|_| goes_on) {
                Some(comment) => {
                    comment.push('\n');
                    comment.push_str(line);
                }
                None => found.push(line.to_owned()),
            }
            end_before = Some(span.end);
        }
        found
    }

    /// Returns the strings between their quotes, with escapes as they are written; none of the raw ones.
    pub fn strings(&self) -> Vec<&str> {
        let literals = comments_and_literals(&self.text).into_iter().map(|span| &self.text[span]);
        literals.filter_map(|literal| literal.strip_prefix('"')?.strip_suffix('"')).collect()
    }

    /// Returns the modules from the crate's root down to this file.
    pub fn module(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.path.trim_end_matches(".rs").split('/').collect();
        names.pop_if(|name| *name == "mod");
        names
    }

    /// Returns the module that the file belongs to; none for the roots of the library and the program.
    pub fn top_module(&self) -> Option<&str> {
        let name = self.module().into_iter().next()?;
        (!matches!(name, "lib" | "main")).then_some(name)
    }
}

/// Reads files, given as path and text, whose module tree begins in one of the files `roots`.
pub fn sources(files: Vec<(String, String)>, roots: &[&str]) -> Vec<Source> {
    let mut sources: Vec<Source> = files.into_iter().map(|(path, text)| source(path, text)).collect();
    let tests: Vec<bool> = {
        let declared = declarations(&sources);
        sources.iter().map(|file| is_test_file(file, &declared, roots)).collect()
    };
    for (file, _) in sources.iter_mut().zip(tests).filter(|(_, of_tests)| *of_tests) {
        file.test_from = 0;
    }
    sources
}

fn source(path: String, text: String) -> Source {
    let code = blank_comments_and_literals(&text);
    let test_from = modules(&code).1;
    Source { path, text, code, test_from }
}

/// Modules declared in each file, and whether for tests alone.
pub type Declarations<'a> = HashMap<&'a str, Vec<(&'a str, bool)>>;

pub fn declarations(sources: &[Source]) -> Declarations<'_> {
    sources.iter().map(|file| (file.path.as_str(), modules(&file.code).0)).collect()
}

/// Returns how a file's parent declares it: for tests alone or not; nothing when no file names it.
pub fn declared_as(module: &[&str], declared: &Declarations<'_>, roots: &[&str]) -> Option<bool> {
    let (name, parents) = module.split_last()?;
    let folder = parents.join("/");
    let files = if parents.is_empty() {
        roots.iter().map(|root| (*root).to_owned()).collect()
    } else {
        vec![format!("{folder}.rs"), format!("{folder}/mod.rs")]
    };
    let found = files.iter().filter_map(|file| declared.get(file.as_str())).flatten().find(|(child, _)| child == name);
    found.map(|(_, for_tests)| *for_tests)
}

fn is_test_file(file: &Source, declared: &Declarations<'_>, roots: &[&str]) -> bool {
    let module = file.module();
    (1..=module.len()).any(|depth| declared_as(&module[..depth], declared, roots) == Some(true))
}

/// Returns the modules that `code` declares in files of their own, and where its inline tests begin.
fn modules(code: &str) -> (Vec<(&str, bool)>, usize) {
    let (mut found, mut gate, mut at) = (Vec::new(), None, 0);
    for line in code.split_inclusive('\n') {
        let (start, trimmed) = (at, line.trim());
        at += line.len();
        if trimmed == "#[cfg(test)]" {
            gate = Some(start);
            continue;
        }
        let visible = trimmed.strip_prefix("pub").map_or(trimmed, |rest| match rest.strip_prefix('(') {
            Some(scoped) => scoped.split_once(") ").map_or(rest, |(_, item)| item),
            None => rest.trim_start(),
        });
        if let Some(rest) = visible.strip_prefix("mod ") {
            match (rest.strip_suffix(';'), gate) {
                (Some(name), gate) => found.push((name, gate.is_some())),
                (None, Some(gate)) => return (found, gate),
                (None, None) => {}
            }
        }
        if trimmed.ends_with([';', '{', '}']) {
            gate = None;
        }
    }
    (found, code.len())
}

/// Returns the first names behind `root::`, such as `disk` for `crate::disk::Disk` and the root `crate`.
pub fn named_below<'a>(code: &'a str, root: &str) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    for (at, found) in code.match_indices(&format!("{root}::")) {
        if code[..at].ends_with(is_word) {
            continue;
        }
        let rest = &code[at + found.len()..];
        match rest.strip_prefix('{') {
            Some(group) => names.extend(members(group)),
            None => names.extend(word(rest)),
        }
    }
    names
}

/// Returns every path below the crate's root that `code` of the module `module` names, as modules and a name.
pub fn named_paths<'a>(code: &'a str, module: &[&'a str]) -> Vec<Vec<&'a str>> {
    let mut written = Vec::new();
    for root in ["crate::", "super::"] {
        for (at, _) in code.match_indices(root).filter(|(at, _)| !code[..*at].ends_with([':', '_', '$'])) {
            spell_out(&code[at..], &[], &mut written);
        }
    }
    let absolute = |path: Vec<&'a str>| {
        let up = path.iter().take_while(|name| **name == "super").count();
        let above = if up == 0 { &[] } else { &module[..module.len().saturating_sub(up)] };
        above.iter().chain(&path[up.max(1)..]).copied().collect()
    };
    written.into_iter().map(absolute).collect()
}

/// Adds the paths that begin with `above` and go on with `rest`, each member of a group by itself; returns what
/// follows them.
fn spell_out<'a>(mut rest: &'a str, above: &[&'a str], found: &mut Vec<Vec<&'a str>>) -> &'a str {
    let mut path = above.to_vec();
    while let Some(name) = word(rest) {
        path.push(name);
        rest = &rest[name.len()..];
        match rest.strip_prefix("::") {
            Some(below) => rest = below,
            None => break,
        }
    }
    let Some(mut rest) = rest.strip_prefix('{') else {
        found.push(path);
        return rest;
    };
    loop {
        rest = spell_out(rest.trim_start(), &path, found);
        // Over `*` and `as name`, to the next member.
        rest = rest.trim_start_matches(|c| !matches!(c, ',' | '}'));
        match rest.strip_prefix(',') {
            Some(next) if !next.trim_start().starts_with('}') => rest = next,
            _ => return rest.split_once('}').map_or("", |(_, behind)| behind),
        }
    }
}

/// The first words of the members of a `{…}` group that has just begun.
fn members(group: &str) -> Vec<&str> {
    let (mut names, mut depth, mut at_start) = (Vec::new(), 0, true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => at_start = true,
            c if at_start && is_word(c) => {
                names.extend(word(&group[at..]));
                at_start = false;
            }
            _ => {}
        }
    }
    names
}

/// Returns whether `code` holds `name` as a whole word.
pub fn has_word(code: &str, name: &str) -> bool {
    code.match_indices(name)
        .any(|(at, _)| !code[..at].ends_with(is_word) && !code[at + name.len()..].starts_with(is_word))
}

/// Returns whether a name may have the character.
pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns names, keywords and numbers of code, in their order.
pub fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c| !is_word(c)).filter(|word| !word.is_empty())
}

fn word(text: &str) -> Option<&str> {
    text.split(|c| !is_word(c)).next().filter(|word| !word.is_empty())
}

/// Returns every function with a body, nested ones too.
pub fn functions(code: &str) -> Vec<Function<'_>> {
    let starts = code.match_indices("fn ").filter(|(at, _)| !code[..*at].ends_with(is_word));
    starts.filter_map(|(at, _)| function(&code[at..])).collect()
}

/// The function whose `fn` begins `code`; nothing for a declaration without a body.
fn function(code: &str) -> Option<Function<'_>> {
    let name = word(&code[3..])?;
    let mut depth = 0;
    let mut in_body = false;
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ';' if depth == 0 => return None,
            '{' => {
                in_body |= depth == 0;
                depth += 1;
            }
            '}' => depth -= 1,
            _ => continue,
        }
        if in_body && depth == 0 {
            return Some(Function { name, lines: code[..at].matches('\n').count() + 1 });
        }
    }
    None
}

/// Blanks comments, strings and characters.
fn blank_comments_and_literals(text: &str) -> String {
    let mut code = text.as_bytes().to_vec();
    for span in comments_and_literals(text) {
        code[span].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
    }
    String::from_utf8(code).unwrap()
}

/// Where comments, strings and characters are, in their order.
fn comments_and_literals(text: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let in_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
        let end = (at + blank_bytes(&bytes[at..], in_word)).min(bytes.len());
        if end > at {
            found.push(at..end);
        }
        at = end.max(at + 1);
    }
    found
}

/// How many bytes of comment or literal begin here.
fn blank_bytes(rest: &[u8], in_word: bool) -> usize {
    match rest {
        [b'/', b'/', ..] => rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment(rest),
        [b'"', ..] => until_quote(rest, b'"'),
        [b'\'', b'\\', ..] => until_quote(rest, b'\''),
        [b'\'', first, ..] => {
            let width = if *first < 0x80 { 1 } else { first.leading_ones() as usize };
            // Without a second quote it is a lifetime.
            if rest.get(1 + width) == Some(&b'\'') { width + 2 } else { 0 }
        }
        [b'b' | b'c', b'r', ..] if !in_word => raw_string(&rest[1..]).map_or(0, |bytes| bytes + 1),
        [b'r', ..] if !in_word => raw_string(rest).unwrap_or(0),
        _ => 0,
    }
}

fn until_quote(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of `r"…"` or `r#"…"#`; nothing for a raw identifier.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return None;
    }
    let close = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
    let body = &rest[2 + hashes..];
    let end = body.windows(close.len()).position(|window| window == close).unwrap_or(body.len());
    Some(2 + hashes + end + close.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_lifetimes_stay() {
        let blanked = |text: &str| blank_comments_and_literals(text).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(blanked("a // b\nc /* d /* e */ f */ g"), "a c g");
        assert_eq!(blanked(r#"a("x\"y{", '{', '\'', b'"', '\u{1}') b"#), "a( , , , b , ) b");
        assert_eq!(blanked("a r\"b\\\" c r#\"d\"e\"# f br\"g\" r#fn"), "a c f r#fn");
        assert_eq!(blanked("fn f<'a>(x: &'a str) { 'é' }"), "fn f<'a>(x: &'a str) { }");
        assert_eq!(blank_comments_and_literals("\"é\n\"x"), "   \n x");
    }

    #[test]
    fn functions_are_measured_to_their_closing_brace() {
        let found = functions(
            "fn a() {\n}\ntrait T { fn b(x: [u8; 2]); }\nfn c<F: Fn(u8)>(\n x: F,\n) -> [u8; 2] {\n if x { y }\n}\ntype P = fn (u8);",
        );
        assert_eq!(found, [Function { name: "a", lines: 2 }, Function { name: "c", lines: 5 }]);
    }

    #[test]
    fn names_below_a_root_are_found_in_paths_and_groups() {
        let code = "use crate::a::B; use crate::{b::{C, d}, e}; my_crate::no(); crate::f::g()";
        assert_eq!(named_below(code, "crate").into_iter().collect::<Vec<_>>(), ["a", "b", "e", "f"]);
    }

    #[test]
    fn paths_are_spelled_out_from_the_root() {
        let code = "use crate::a::{b::{C, d}, e as f,\n};\nuse super::g::*; super::super::h(); pub(super) fn i() {}";
        let found = named_paths(code, &["m", "n", "o"]);
        let found: Vec<String> = found.iter().map(|path| path.join("::")).collect();
        assert_eq!(found, ["a::b::C", "a::b::d", "a::e", "m::n::g", "m::h"]);
    }

    #[test]
    fn what_only_tests_compile_is_told_from_production() {
        let files = [
            ("lib.rs", "pub mod a;"),
            (
                "a/mod.rs",
                "pub(in crate::a) mod b;\n#[cfg(test)]\n#[expect(x,\n reason = \"y\")]\nmod tests;\nfn p() {}\n#[cfg(test)]\nmod more {\n fn t() {} }",
            ),
            ("a/b.rs", "#[cfg(test)]\nfn t() {}\nfn p() {}"),
            ("a/tests.rs", "mod deep;"),
            ("a/tests/deep.rs", "fn t() {}"),
        ];
        let files = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
        let sources = sources(files.to_vec(), &["lib.rs"]);
        let production: Vec<bool> = sources.iter().map(|file| file.production().contains("fn")).collect();
        assert_eq!(production, [false, true, true, false, false]);
        assert!(!sources[1].production().contains("more"));
        assert_eq!(declarations(&sources)["a/mod.rs"], [("b", false), ("tests", true)]);
    }
}
