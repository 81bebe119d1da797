//! Cutting a text into passages: at headings and paragraphs where it is Markdown, else at blank lines.

use std::ops::Range;

use crate::object::{Context, Hash};

/// Bytes of a passage from which on no further paragraph is added.
const TARGET_BYTES: usize = 1_200;
/// Bytes of the longest passage; a line that is longer becomes several.
pub const PASSAGE_BYTES_MAX: usize = 2_000;
/// Bytes of a heading that count for the passages below it.
const HEADING_BYTES_MAX: usize = 200;
static PASSAGE_CONTEXT: Context = Context::new("engramfs 2026 passage v1");

/// How a text is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Syntax {
    /// Source and plain text: at blank lines.
    Plain,
    /// At headings, too.
    Markdown,
}

impl Syntax {
    /// Returns how a file with that name is cut: as Markdown with the extension `md`, `markdown`, `mdx` or `mkd`, in
    /// any case.
    pub fn from_file_name(name: &[u8]) -> Syntax {
        let extension = name.rsplit(|byte| *byte == b'.').next().unwrap_or_default().to_ascii_lowercase();
        let is_markdown = matches!(&*extension, b"md" | b"markdown" | b"mdx" | b"mkd");
        if is_markdown && name.contains(&b'.') { Syntax::Markdown } else { Syntax::Plain }
    }
}

/// A part of a text that is found by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The number of its first line, from 1.
    pub line: u32,
    /// Its bytes in the text, without blank lines at either end.
    pub range: Range<usize>,
    /// The headings above it, the outermost first; its own is in its bytes.
    pub headings: Vec<Range<usize>>,
}

impl Passage {
    /// Returns what is found of it: the headings above it, a line each, and its bytes.
    pub fn indexed_text(&self, text: &str) -> String {
        let mut document = String::with_capacity(self.range.len() + 80);
        for heading in &self.headings {
            document.push_str(&text[heading.clone()]);
            document.push('\n');
        }
        document.push_str(&text[self.range.clone()]);
        document
    }
}

/// Names a passage by its text, wherever that is found: the first half of its hash, which leaves no two alike.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PassageKey(pub [u8; 16]);

impl PassageKey {
    /// Returns by what the vector of the passage is found, beside those of other texts.
    pub fn vector_key(&self) -> Hash {
        let mut bytes = [0; 32];
        bytes[..self.0.len()].copy_from_slice(&self.0);
        Hash(bytes)
    }

    /// Returns the key of a passage's text: equal texts have one key, whatever files they are in.
    pub fn from_text(text: &str) -> PassageKey {
        let hash = Hash::digest(&PASSAGE_CONTEXT, text.as_bytes());
        PassageKey(hash.0.first_chunk().copied().unwrap_or_default())
    }
}

/// Cuts a text into passages of at most [`PASSAGE_BYTES_MAX`] bytes (2,000), in order. Blank lines belong to none.
pub fn split_passages(text: &str, syntax: Syntax) -> Vec<Passage> {
    let mut splitter = PassageSplitter { text, ..PassageSplitter::default() };
    let lines = lines(text);
    let mut fence = None;
    for (at, line) in lines.iter().enumerate() {
        let content = text[line.range.clone()].trim();
        if syntax == Syntax::Markdown {
            let heading =
                fence.is_none().then(|| heading(content, lines.get(at + 1).map(|next| &text[next.range.clone()])));
            if let Some((level, title)) = heading.flatten() {
                splitter.add_heading(line, level, title);
                continue;
            }
            fence = fence_after(fence, content);
        }
        if content.is_empty() { splitter.end_paragraph() } else { splitter.add_line(line) }
    }
    splitter.end_paragraph();
    splitter.end_passage();
    splitter.passages
}

/// A line, or a part of one that is too long for a passage.
#[derive(Clone)]
struct Line {
    number: u32,
    range: Range<usize>,
}

/// Cuts a text into lines, and lines that are too long into parts: behind a blank, if one is near.
fn lines(text: &str) -> Vec<Line> {
    // A byte-order mark is not part of the first line.
    let (mut lines, mut start) = (Vec::new(), if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 });
    for (line, number) in text[start..].split_inclusive('\n').zip(1u32..) {
        let end = start + line.len();
        while end - start > PASSAGE_BYTES_MAX {
            let most = text.floor_char_boundary(start + PASSAGE_BYTES_MAX);
            let half = text.ceil_char_boundary(start + PASSAGE_BYTES_MAX / 2);
            let cut = text[half..most].rfind([' ', '\t']).map_or(most, |blank| half + blank + 1);
            lines.push(Line { number, range: start..cut });
            start = cut;
        }
        lines.push(Line { number, range: start..end });
        start = end;
    }
    lines
}

/// Returns the level and title of a heading: behind `#` to `######`, or with a line of `=` or `-` below it.
fn heading<'a>(line: &'a str, next: Option<&str>) -> Option<(usize, &'a str)> {
    let level = line.bytes().take_while(|byte| *byte == b'#').count();
    let title = &line[level..];
    if (1..=6).contains(&level) && (title.is_empty() || title.starts_with([' ', '\t'])) {
        return Some((level, title.trim().trim_end_matches('#').trim_end()));
    }
    let underline = next.map(str::trim_end).filter(|next| next.len() >= 3)?;
    let is_title = line.starts_with(char::is_alphanumeric) && level == 0;
    let is_all = |mark: char| underline.chars().all(|c| c == mark);
    match is_title {
        true if is_all('=') => Some((1, line)),
        true if is_all('-') => Some((2, line)),
        _ => None,
    }
}

/// Returns the mark of the code block that is open behind a line.
fn fence_after(open: Option<char>, line: &str) -> Option<char> {
    let mark = ['`', '~'].into_iter().find(|mark| line.chars().take_while(|c| c == mark).count() >= 3);
    match (open, mark) {
        (None, mark) => mark,
        (Some(open), Some(mark)) if open == mark && line.chars().all(|c| c == mark) => None,
        (open, _) => open,
    }
}

/// Gathers lines into paragraphs and paragraphs into passages.
#[derive(Default)]
struct PassageSplitter<'a> {
    text: &'a str,
    passages: Vec<Passage>,
    /// The headings above the present line.
    headings: Vec<(usize, Range<usize>)>,
    /// How many of them are above the passage, and not in it.
    headings_above: usize,
    passage: Option<Line>,
    paragraph: Option<Line>,
}

impl PassageSplitter<'_> {
    fn add_heading(&mut self, line: &Line, level: usize, title: &str) {
        self.end_paragraph();
        self.end_passage();
        self.headings.retain(|(above, _)| *above < level);
        self.headings_above = self.headings.len();
        let start = title.as_ptr().addr() - self.text.as_ptr().addr();
        let end = self.text.floor_char_boundary(start + title.len().min(HEADING_BYTES_MAX));
        self.headings.push((level, start..end));
        self.passage = Some(line.clone());
    }

    fn add_line(&mut self, line: &Line) {
        match &mut self.paragraph {
            Some(paragraph) if line.range.end - paragraph.range.start <= PASSAGE_BYTES_MAX => {
                paragraph.range.end = line.range.end;
            }
            Some(_) => {
                self.end_paragraph();
                self.end_passage();
                self.paragraph = Some(line.clone());
            }
            None => self.paragraph = Some(line.clone()),
        }
    }

    fn end_paragraph(&mut self) {
        let Some(paragraph) = self.paragraph.take() else { return };
        let joined = self.passage.as_ref().map(|passage| passage.range.start..paragraph.range.end);
        match joined {
            Some(joined) if joined.len() <= TARGET_BYTES => {
                self.passage.iter_mut().for_each(|passage| passage.range = joined.clone());
            }
            _ => {
                self.end_passage();
                self.passage = Some(paragraph);
            }
        }
    }

    fn end_passage(&mut self) {
        let Some(Line { number, range }) = self.passage.take() else { return };
        let end = range.start + self.text[range.clone()].trim_end().len();
        let headings = self.headings[..self.headings_above].iter().map(|(_, title)| title.clone()).collect();
        self.passages.push(Passage { line: number, range: range.start..end, headings });
        self.headings_above = self.headings.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str, syntax: Syntax) -> Vec<(u32, &str, String)> {
        let show = |passage: Passage| {
            let headings: Vec<&str> = passage.headings.iter().map(|range| &text[range.clone()]).collect();
            (passage.line, &text[passage.range.clone()], headings.join(" > "))
        };
        split_passages(text, syntax).into_iter().map(show).collect()
    }

    #[test]
    fn markdown_is_cut_at_headings_which_count_for_what_is_below_them() {
        let text = "intro\n\n# One\n\ntext a\n\n## Two ##\ntext b\n\n```\n# no heading\n```\n\nThree\n=====\nc\n";
        let expected = [
            (1, "intro", ""),
            (3, "# One\n\ntext a", ""),
            (7, "## Two ##\ntext b\n\n```\n# no heading\n```", "One"),
            (14, "Three\n=====\nc", ""),
        ];
        assert_eq!(cut(text, Syntax::Markdown), expected.map(|(line, text, above)| (line, text, above.to_owned())));
        assert_eq!(cut(text, Syntax::Plain).len(), 1);
        let text = format!("# {}\n\n## Part\n\ntext", "x".repeat(300));
        assert_eq!(cut(&text, Syntax::Markdown)[1].2, "x".repeat(200), "a heading counts by its beginning");
    }

    #[test]
    fn a_long_section_is_cut_between_paragraphs_and_keeps_its_headings() {
        let paragraph = "word ".repeat(100);
        let text = format!("# Title\n\n{paragraph}\n\n{paragraph}\n\n{paragraph}\n");
        let found = cut(&text, Syntax::Markdown);
        assert_eq!(found.iter().map(|(line, ..)| *line).collect::<Vec<_>>(), [1, 7]);
        assert_eq!((&*found[0].2, &*found[1].2), ("", "Title"));
    }

    #[test]
    fn a_passage_has_1200_bytes_where_paragraphs_allow_it_and_2000_at_most() {
        let passages = |text: String| cut(&text, Syntax::Plain).len();
        let paragraphs = |bytes: usize| format!("{}\n\n{}", "a".repeat(bytes - 600), "b".repeat(598));
        assert_eq!([1_200, 1_201].map(|bytes| passages(paragraphs(bytes))), [1, 2]);
        assert_eq!([2_000, 2_001].map(|bytes| passages("x".repeat(bytes))), [1, 2]);
    }

    /// Returns whether a passage ends with a line, or one that is too long with a word, or else where no blank was near.
    fn is_cut_well(text: &str, passage: &Range<usize>) -> bool {
        let rest = text[passage.end..].trim_start_matches([' ', '\t', '\r']);
        if rest.is_empty() || rest.starts_with('\n') {
            return true;
        }
        let is_blank = |c: char| matches!(c, ' ' | '\t');
        let start_of_line = text[..passage.end].rfind('\n').map_or(0, |end| end + 1);
        let line_bytes = text[start_of_line..].split('\n').next().unwrap_or_default().len();
        let half = text.ceil_char_boundary(passage.start + PASSAGE_BYTES_MAX / 2);
        let has_blank = half < passage.end && text[half..passage.end].contains(is_blank);
        line_bytes > PASSAGE_BYTES_MAX && (text[passage.end..].starts_with(is_blank) || !has_blank)
    }

    #[test]
    fn long_lines_and_long_paragraphs_are_cut_and_nothing_but_blanks_is_lost() {
        let texts = [
            "x".repeat(10_000),
            "wörd ".repeat(3_000),
            "a line of text\n".repeat(1_000),
            format!("{}\n\n\r\n{}", "é".repeat(1_999), "b c\n".repeat(700)),
            format!("{} {} {}", "x".repeat(900), "y".repeat(900), "z".repeat(4_000)),
            "\u{feff}\n\n  \n".to_owned(),
            String::new(),
        ];
        assert_eq!(split_passages(&texts[0], Syntax::Plain)[0].range, 0..2_000);
        let is_blank = |text: &str| text.chars().all(|c| c.is_whitespace() || c == '\u{feff}');
        for text in &texts {
            for syntax in [Syntax::Plain, Syntax::Markdown] {
                let found = split_passages(text, syntax);
                let mut end = 0;
                for passage in &found {
                    assert!(passage.range.len() <= PASSAGE_BYTES_MAX && !passage.range.is_empty());
                    assert!(is_blank(&text[end..passage.range.start]));
                    let line = text[..passage.range.start].bytes().filter(|byte| *byte == b'\n').count() + 1;
                    assert_eq!(passage.line as usize, line);
                    end = passage.range.end;
                    assert!(is_cut_well(text, &passage.range), "{:?}", &text[passage.range.clone()]);
                }
                assert!(is_blank(&text[end..]));
            }
        }
    }

    /// A file seemed to have wrong lines with CRLF: it was cut elsewhere, as its lines have more bytes.
    #[test]
    fn a_passage_tells_its_first_line_with_either_end_of_lines() {
        let first_lines = |end: &str, blank_every: usize| -> Vec<u32> {
            let line = |n: usize| match n % blank_every {
                0 => end.to_owned(),
                _ => format!("line {n} says a word or two{end}"),
            };
            let text: String = (1..=300).map(line).collect();
            let found = cut(&text, Syntax::Plain);
            for (line, passage, _) in &found {
                assert!(passage.starts_with(&format!("line {line} ")), "{line}: {passage:?}");
            }
            found.iter().map(|(line, ..)| *line).collect()
        };
        assert!(first_lines("\n", 9).len() > 5 && first_lines("\r\n", 9).len() > 5);
        assert_ne!(first_lines("\n", 1_000), first_lines("\r\n", 1_000));
    }

    #[test]
    fn markdown_is_told_by_its_name() {
        let markdown = |name: &str| Syntax::from_file_name(name.as_bytes()) == Syntax::Markdown;
        assert!(["a.md", "a.b.MD", ".markdown", "a.mdx", "a.mkd"].into_iter().all(markdown));
        assert!(!markdown("md") && !markdown("a.rs") && !markdown("a.md.txt"));
    }
}
