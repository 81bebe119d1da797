//! One item that both sides of a merge changed, its canonical bytes and its form for readers.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use crate::object::{CodecError, Context, Hash, Reader, Writer};

static LOST_CONTEXT: Context = Context::new("engramfs 2026 lost part v1");

/// Which bytes of an entry are written. What was signed holds hashes of lines that a merge did not keep, so that a purge
/// can take a line away and leave hash and signature of its entry as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryForm {
    /// What is hashed and signed: of lost lines their hashes.
    Signed,
    /// What is stored: lost lines as they were, until a purge leaves their hashes alone.
    Stored,
}

/// The side of a merge that a conflict was decided for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The branch that is merged or pulls; in a revert the state before the entries.
    Child,
    /// The branch that the child was forked from; in a revert the branch itself.
    Parent,
    /// Both sides hold the same, or a record of each is kept.
    Both,
}

/// A line or an entry of a file that a merge did not keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostPart {
    /// The side whose version had it.
    pub side: Side,
    /// What it said, cut where it is long: the whole of it is in that side's version of the file. Blanks where it was
    /// purged, as many as keep the lines of readers at their offsets.
    pub text: Arc<str>,
    /// Hash of what it said, where that was purged.
    pub purged: Option<Hash>,
}

impl LostPart {
    /// Returns a part that a merge has just lost, of which nothing is purged.
    pub fn new(side: Side, text: Arc<str>) -> LostPart {
        LostPart { side, text, purged: None }
    }

    fn hash(&self) -> Hash {
        self.purged.unwrap_or_else(|| Hash::digest(&LOST_CONTEXT, self.text.as_bytes()))
    }

    /// Returns the part with blanks for its text, and with the hash that was signed.
    fn without_text(&self) -> LostPart {
        // Without the quotes. Blanks need no escape, so the line stays as long as it was.
        let length = json!(*self.text).to_string().len() - 2;
        LostPart { side: self.side, text: " ".repeat(length).into(), purged: Some(self.hash()) }
    }

    fn write(&self, out: &mut Writer, form: EntryForm) {
        let code = side_code(Some(self.side));
        match (form, &self.purged) {
            (EntryForm::Signed, _) => out.byte(code).hash(&self.hash()),
            (EntryForm::Stored, None) => out.byte(code).text(&self.text),
            (EntryForm::Stored, Some(hash)) => out.byte(code | PURGED).hash(hash).number(self.text.len() as u64),
        };
    }

    fn read(input: &mut Reader<'_>) -> Result<LostPart, CodecError> {
        let code = input.byte()?;
        let side = side_from_code(code & !PURGED)?.ok_or(CodecError::Code(code))?;
        if code & PURGED == 0 {
            return Ok(LostPart::new(side, input.text()?.into()));
        }
        let (hash, length) = (input.hash()?, input.number()?);
        let length = usize::try_from(length).ok().filter(|length| *length <= PURGED_BYTES_MAX);
        let text = " ".repeat(length.ok_or(CodecError::Number)?).into();
        Ok(LostPart { side, text, purged: Some(hash) })
    }
}

/// One item that both sides changed, and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The record's id, or the file's path in its branch, which begins with `files/`. No id has a
    /// slash in it.
    pub id: Arc<str>,
    /// The version in the base, if there was one.
    pub base: Option<Hash>,
    /// The version in the child, unless it was deleted there.
    pub child: Option<Hash>,
    /// The version in the parent, unless it was deleted there.
    pub parent: Option<Hash>,
    /// Which side was taken; `None` if it waits for `resolve`.
    pub decision: Option<Side>,
    /// Of a file whose lines or entries were joined: the first of those that were not kept.
    pub lost: Vec<LostPart>,
    /// How many more were not kept than [`Decision::lost`] has.
    pub lost_more: u64,
    /// Why a file did not merge by its kind; `None` if it did.
    pub note: Option<Arc<str>>,
    /// The id that the child's version of a record has in the result, where both are kept.
    pub kept_as: Option<Arc<str>>,
}

/// Set in the code of a decision that details follow.
const WITH_DETAILS: u8 = 0x10;
/// Set in the side of a part that was purged.
const PURGED: u8 = 0x10;
/// Longest text that a purged part may claim. No part is longer as JSON, so a larger number is damage.
const PURGED_BYTES_MAX: usize = 1 << 16;

fn side_code(side: Option<Side>) -> u8 {
    match side {
        None => 0,
        Some(Side::Child) => 1,
        Some(Side::Parent) => 2,
        Some(Side::Both) => 3,
    }
}

fn side_from_code(code: u8) -> Result<Option<Side>, CodecError> {
    match code {
        0 => Ok(None),
        1 => Ok(Some(Side::Child)),
        2 => Ok(Some(Side::Parent)),
        3 => Ok(Some(Side::Both)),
        code => Err(CodecError::Code(code)),
    }
}

impl Decision {
    fn has_details(&self) -> bool {
        !self.lost.is_empty() || self.lost_more > 0 || self.note.is_some() || self.kept_as.is_some()
    }

    /// Returns whether both sides changed it differently, and not just in different places.
    pub fn is_conflict(&self) -> bool {
        self.decision != Some(Side::Both) || self.kept_as.is_some()
    }

    /// Appends id, three versions (zeros for none) and what follows them, as the form asks.
    pub(super) fn write(&self, out: &mut Writer, form: EntryForm) {
        out.text(&self.id);
        for version in [&self.base, &self.child, &self.parent] {
            out.hash(&version.unwrap_or(Hash::ZERO));
        }
        self.write_form_without_versions(out, form);
    }

    /// Appends the stored bytes without id and versions, for a caller that stores those itself.
    pub fn write_without_versions(&self, out: &mut Writer) {
        self.write_form_without_versions(out, EntryForm::Stored);
    }

    fn write_form_without_versions(&self, out: &mut Writer, form: EntryForm) {
        if !self.has_details() {
            out.byte(side_code(self.decision));
            return;
        }
        out.byte(side_code(self.decision) | WITH_DETAILS).number(self.lost.len() as u64);
        self.lost.iter().for_each(|part| part.write(out, form));
        out.number(self.lost_more).optional_text(self.note.as_deref()).optional_text(self.kept_as.as_deref());
    }

    /// Takes the text of all lines away that the merge did not keep; returns whether there was some.
    pub fn purge_lost(&mut self) -> bool {
        let has_text = self.lost.iter().any(|part| part.purged.is_none());
        self.lost.iter_mut().filter(|part| part.purged.is_none()).for_each(|part| *part = part.without_text());
        has_text
    }

    /// Reads stored bytes back. Fails with the `CodecError` of the first value that is not of the expected form.
    pub(super) fn read(input: &mut Reader<'_>) -> Result<Decision, CodecError> {
        let id = input.text()?.into();
        let mut version = || input.hash().map(|hash| (hash != Hash::ZERO).then_some(hash));
        let (base, child, parent) = (version()?, version()?, version()?);
        Ok(Decision { id, base, child, parent, ..Decision::read_without_versions(input)? })
    }

    /// Reads what [`Decision::write_without_versions`] gave: a decision without id and versions. [`CodecError::Code`]
    /// for details that are none: there is one form for each decision.
    pub fn read_without_versions(input: &mut Reader<'_>) -> Result<Decision, CodecError> {
        let code = input.byte()?;
        let plain = Decision { decision: side_from_code(code & !WITH_DETAILS)?, ..Decision::default() };
        if code & WITH_DETAILS == 0 {
            return Ok(plain);
        }
        let lost = (0..input.length()?).map(|_| LostPart::read(input)).collect::<Result<_, _>>()?;
        let (lost_more, note) = (input.number()?, input.optional_text()?.map(Arc::from));
        let kept_as = input.optional_text()?.map(Arc::from);
        let whole = Decision { lost, lost_more, note, kept_as, ..plain };
        // A decision without details has a form of its own. Taking this one as well would let two byte strings mean one
        // decision, and so give it two hashes.
        if whole.has_details() { Ok(whole) } else { Err(CodecError::Code(code)) }
    }

    /// Returns whether it is about a file: no id of a record has a slash in it.
    pub fn is_file(&self) -> bool {
        self.id.starts_with("files/")
    }

    /// Returns the form of a version that was purged, in the lineage.
    pub(super) fn to_purged_json(&self) -> Value {
        let key = if self.is_file() { "path" } else { "id" };
        json!({ key: &*self.id, "version": self.base.map(|hash| hash.to_string()) })
    }

    /// Returns the form in results, `conflicts` and lineage: `kind` (`record` or `file`), `id` or `path`, the hashes
    /// `base`, `child` and `parent`, null if a side has none, and `decision`, null while there is none; `lost` with
    /// `lost_more`, `kept_as` and `note` only where there is something in them.
    pub fn to_json(&self) -> Value {
        let version = |hash: Option<Hash>| hash.map(|hash| hash.to_string());
        let (kind, key) = if self.is_file() { ("file", "path") } else { ("record", "id") };
        let mut line = json!({
            "kind": kind, key: &*self.id, "base": version(self.base), "child": version(self.child),
            "parent": version(self.parent), "decision": self.decision,
        });
        if !self.lost.is_empty() || self.lost_more > 0 {
            let part = |part: &LostPart| json!({ "side": part.side, "text": &*part.text });
            line["lost"] = self.lost.iter().map(part).collect();
            line["lost_more"] = json!(self.lost_more);
        }
        if let Some(id) = &self.kept_as {
            line["kept_as"] = json!(**id);
        }
        if let Some(note) = &self.note {
            line["note"] = json!(**note);
        }
        line
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Decision, CodecError> {
        Decision::read(&mut Reader::new(bytes))
    }

    #[test]
    fn details_are_read_back_and_cost_nothing_where_there_are_none() {
        let plain = Decision { id: "files/a".into(), child: Some(Hash([1; 32])), ..Decision::default() };
        let part = LostPart::new(Side::Child, "a line".into());
        let note = Some("merged as a whole".into());
        let kept_as = Some("a~x".into());
        let full =
            Decision { lost: vec![part], lost_more: 3, note, kept_as, decision: Some(Side::Both), ..plain.clone() };
        let bytes = |decision: &Decision| {
            let mut out = Writer::new();
            decision.write(&mut out, EntryForm::Stored);
            out.finish()
        };
        for decision in [&plain, &full] {
            assert_eq!(read(&bytes(decision)).unwrap(), *decision);
        }
        assert_eq!(bytes(&plain).len(), 1 + 7 + 3 * 32 + 1);
        // A flag with nothing behind it would be a second form of the same.
        let mut empty = bytes(&plain);
        *empty.last_mut().unwrap() |= WITH_DETAILS;
        read(&[&empty[..], &[0, 0, 0, 0]].concat()).unwrap_err();
        assert_eq!(full.to_json()["lost"][0]["text"], "a line");
        assert_eq!(plain.to_json().get("lost"), None);
    }

    #[test]
    fn a_purged_part_is_blank_and_its_decision_signed_as_before() {
        let lost = vec![LostPart::new(Side::Parent, "say \"hunter2\"\n".into())];
        let mut decision = Decision { id: "files/a".into(), decision: Some(Side::Child), lost, ..Decision::default() };
        let signed = |decision: &Decision| {
            let mut out = Writer::new();
            decision.write(&mut out, EntryForm::Signed);
            out.finish()
        };
        let (before, line) = (signed(&decision), decision.to_json().to_string());
        assert!(decision.purge_lost() && !decision.purge_lost(), "once");
        let mut out = Writer::new();
        decision.write(&mut out, EntryForm::Stored);
        let bytes = out.finish();
        assert!(!String::from_utf8_lossy(&bytes).contains("hunter2"));
        let back = read(&bytes).unwrap();
        assert_eq!((signed(&back), &back), (before, &decision));
        assert_eq!(back.to_json().to_string().len(), line.len(), "what follows in a file of lines stays where it is");
    }
}
