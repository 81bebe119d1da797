//! The files, types and methods that a page about the source names, and names that say too little.

use std::collections::BTreeSet;

use super::source::{Source, functions, has_word, words};

/// Words that tell nothing of what they name.
const EMPTY_WORDS: [&str; 7] = ["common", "helper", "helpers", "manager", "misc", "util", "utils"];

/// Every file that the page names in backticks is there, and can be taken for no other one: its path below src/ is spelled out,
/// or the end of it is that of one file alone. Of those below tests/, `tests` knows.
pub fn missing_files(page: &str, sources: &[Source], tests: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for path in quoted(page).filter(|text| text.ends_with(".rs")) {
        let files: Vec<&str> = match path.strip_prefix("tests/engramfs/") {
            Some(test) => tests.iter().map(|file| file.path.as_str()).filter(|file| *file == test).collect(),
            None if sources.iter().any(|file| file.path == path) => continue,
            None => {
                let is_end = |file: &&str| file.strip_suffix(path).is_some_and(|folder| folder.ends_with('/'));
                sources.iter().map(|file| file.path.as_str()).filter(is_end).collect()
            }
        };
        match files.as_slice() {
            [_] => {}
            [] => found.push(format!("a page names the file {path}, which is not there")),
            several => found.push(format!("a page names {path}, which may be any of {}", several.join(", "))),
        }
    }
    found
}

/// Every `Type::method` and `module::item` that the page names is there.
pub fn missing_items(page: &str, sources: &[Source]) -> Vec<String> {
    let named = quoted(page).chain(steps(page).map(|(_, method)| method)).filter_map(|text| text.split_once("::"));
    named
        .filter(|(owner, item)| !owner.is_empty() && !is_there(owner, item, sources))
        .map(|(owner, item)| format!("a page names {owner}::{item}, which is not there"))
        .collect()
}

/// Each file of the page's diagram calls the method below it.
pub fn strange_steps(page: &str, sources: &[Source]) -> Vec<String> {
    if steps(page).next().is_none() {
        return vec!["the page has no diagram of files and methods".to_owned()];
    }
    let calls = |path: &str, method: &str| {
        let call = format!(".{}(", method.rsplit("::").next().unwrap_or(method));
        sources.iter().any(|file| file.path == path && file.production().contains(&call))
    };
    let strange = steps(page).filter(|(path, method)| !calls(path, method));
    strange.map(|(path, method)| format!("the diagram says that {path} calls {method}, which it does not")).collect()
}

/// Functions whose names end in `_of`: a call says neither what one gives nor what it does. Every exception has to be needed.
pub fn functions_ending_in_of(sources: &[Source], exceptions: &[&str]) -> Vec<String> {
    let (mut found, mut needless) = (Vec::new(), exceptions.iter().copied().collect::<BTreeSet<&str>>());
    for file in sources {
        for function in functions(&file.code).iter().filter(|function| function.name.ends_with("_of")) {
            needless.remove(function.name);
            if !exceptions.contains(&function.name) {
                found.push(format!("{} says neither what it gives nor what it does, in {}", function.name, file.path));
            }
        }
    }
    found.extend(needless.into_iter().map(|name| format!("needs no exception or is not there: {name}")));
    found
}

/// Files, types and functions with a word that tells nothing in their names, and functions that say only that they handle
/// something. Every exception has to be needed.
pub fn names_that_tell_nothing(sources: &[Source], exceptions: &[&str]) -> Vec<String> {
    let (mut found, mut needless) = (Vec::new(), exceptions.iter().copied().collect::<BTreeSet<&str>>());
    for file in sources {
        let mut names = file.module();
        names.retain(|name| has_empty_word(name));
        let declared = declared_names(file.production());
        names.extend(declared.into_iter().filter(|name| name.starts_with("handle_") || has_empty_word(name)));
        for name in names {
            needless.remove(name);
            if !exceptions.contains(&name) {
                found.push(format!("{name} tells nothing of what it names, in {}", file.path));
            }
        }
    }
    found.extend(needless.into_iter().map(|name| format!("needs no exception or is not there: {name}")));
    found
}

/// Tells whether one of the words of a name, in snake case or camel case, is an empty one.
fn has_empty_word(name: &str) -> bool {
    let mut words = String::new();
    for character in name.chars() {
        if character.is_uppercase() {
            words.push('_');
        }
        words.extend(character.to_lowercase());
    }
    words.split('_').any(|word| EMPTY_WORDS.contains(&word))
}

/// The names of types and functions that code declares, with or without a body.
fn declared_names(code: &str) -> Vec<&str> {
    let words: Vec<&str> = words(code).collect();
    let declares = |word: &str| ["fn", "struct", "enum", "trait", "type", "union"].contains(&word);
    words.windows(2).filter(|pair| declares(pair[0])).map(|pair| pair[1]).collect()
}

/// What is in backticks, outside of blocks of code.
pub fn quoted(page: &str) -> impl Iterator<Item = &str> {
    page.split("```").step_by(2).flat_map(|text| text.split('`').skip(1).step_by(2))
}

/// The files of the diagram, each with what stands below it: a line of files is followed by one of methods.
fn steps(page: &str) -> impl Iterator<Item = (&str, &str)> {
    let cells = |line| str::split(line, "  ").map(str::trim).filter(|cell| !cell.is_empty());
    let files = page.lines().zip(page.lines().skip(1)).filter(move |(line, _)| {
        let mut files = cells(line).peekable();
        files.peek().is_some() && files.all(|cell| cell.ends_with(".rs") && !cell.contains([' ', '`']))
    });
    files.flat_map(move |(files, methods)| cells(files).zip(cells(methods).chain(std::iter::repeat("nothing"))))
}

/// Tells whether a type has the method, or a module declares the item.
fn is_there(owner: &str, item: &str, sources: &[Source]) -> bool {
    if owner.starts_with(char::is_uppercase) {
        return sources.iter().any(|file| {
            impls(file.production(), owner).any(|block| functions(block).iter().any(|function| function.name == item))
        });
    }
    let declares =
        |code: &str| ["fn", "struct", "enum", "trait"].iter().any(|word| has_word(code, &format!("{word} {item}")));
    sources.iter().any(|file| file.top_module() == Some(owner) && declares(file.production()))
}

/// The blocks `impl` of a type, which the formatter ends at the beginning of a line.
fn impls<'a>(code: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let blocks = code.split("\nimpl").skip(1).map(|block| block.split("\n}").next().unwrap_or(block));
    blocks.filter(move |block| {
        let head = block.split('{').next().unwrap_or_default();
        has_word(head.rsplit(" for ").next().unwrap_or(head), name)
    })
}

#[cfg(test)]
mod tests {
    use super::super::source::sources;
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Vec<Source> {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        sources(files.collect(), &["lib.rs"])
    }

    #[test]
    fn a_file_that_is_not_there_or_may_be_another_one_is_found() {
        let src = tree(&[("a/x.rs", ""), ("a/walk.rs", ""), ("b/walk.rs", ""), ("b/side_walk.rs", "")]);
        let tests = tree(&[("t.rs", "")]);
        let found = |page| missing_files(page, &src, &tests).len();
        assert_eq!(found("`a/x.rs`, `x.rs`, `b/walk.rs`, `side_walk.rs`, `tests/engramfs/t.rs`, gone.rs"), 0);
        for wrong in ["`a/y.rs`", "`walk.rs`", "`/x.rs`", "`b/x.rs`", "`tests/engramfs/x.rs`", "`t.rs`"] {
            assert_eq!(found(wrong), 1, "{wrong}");
        }
    }

    #[test]
    fn a_method_of_another_type_and_an_item_of_another_module_are_found() {
        let code = "\nimpl<T> Read for Store<T> {\n    fn read() {\n    }\n}\n\nimpl Other {\n    fn write() {\n    }\n}\npub fn free() {}\n";
        let src = tree(&[("a/x.rs", code), ("b.rs", "struct Thing;")]);
        let found = |page| missing_items(page, &src).len();
        assert_eq!(found("`Store::read`, `Other::write`, `a::free`, `b::Thing`, `::`, No::where"), 0);
        for wrong in ["`Store::write`", "`Read::read`", "`Gone::read`", "`b::free`", "`a::Thing`"] {
            assert_eq!(found(wrong), 1, "{wrong}");
        }
    }

    #[test]
    fn a_function_that_ends_in_of_is_found_and_so_is_a_needless_exception() {
        let code = "fn size_of_file() {}\n\nfn name_of(x: u8) {}";
        let src = tree(&[("a.rs", code), ("b.rs", "fn is_part_of() {} // fn gone_of() {}")]);
        let found = |exceptions: &[&str]| functions_ending_in_of(&src, exceptions).len();
        assert_eq!(found(&[]), 2);
        assert_eq!(found(&["is_part_of"]), 1);
        assert_eq!(found(&["is_part_of", "gone_of"]), 2);
    }

    #[test]
    fn a_name_that_tells_nothing_is_found_and_so_is_a_needless_exception() {
        let code = "struct FileManager;\nenum Helped {}\ntrait Ask { fn ask_helper(); }\nfn handle_it() {}\nfn handle() { helper() }\n";
        let code = format!("{code}#[cfg(test)]\nmod tests {{\n    fn util() {{}}\n}}\n");
        let src = tree(&[
            ("a.rs", code.as_str()),
            ("handle_requests.rs", ""),
            ("b/text_utils.rs", "// fn misc() {}"),
            ("common/mod.rs", ""),
        ]);
        let found = |exceptions: &[&str]| names_that_tell_nothing(&src, exceptions).len();
        assert_eq!(found(&[]), 5);
        assert_eq!(found(&["ask_helper"]), 4);
        assert_eq!(found(&["ask_helper", "gone_helper"]), 5);
    }

    #[test]
    fn a_file_of_the_diagram_that_calls_another_method_is_found() {
        let src = tree(&[
            ("a.rs", "fn f() { memory.fork(x) }\n\nimpl Memory {\n    fn fork() {\n    }\n}\n"),
            ("b.rs", "fn f() { memory.ask_for(x) } // memory.ask(x)"),
        ]);
        let page =
            |methods: &str| format!("text\n\n```text\nmkdir   a query\na.rs    b.rs\n{methods}\n   \\     /\n```\n");
        assert!(strange_steps(&page("Memory::fork  Memory::ask_for"), &src).is_empty());
        assert_eq!(strange_steps(&page("Memory::fork  Memory::ask"), &src).len(), 1);
        assert_eq!(strange_steps(&page("Memory::ask_for  Memory::fork"), &src).len(), 2);
        assert_eq!(strange_steps(&page("Memory::fork"), &src).len(), 1);
        assert_eq!(strange_steps("no diagram", &src).len(), 1);
        assert_eq!(missing_items(&page("Memory::fork  Memory::gone"), &src).len(), 1);
    }
}
