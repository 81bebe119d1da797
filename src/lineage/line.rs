//! Entries as lines of `lineage` and `events.jsonl`. The same entry always gives lines of the same length, whoever reads
//! them: offsets in these files rest on that.

use std::io::Write;

use serde_json::Value;

use super::entry::Detail;
use super::{Decision, EntryOp, SignedEntry};

impl SignedEntry {
    /// Appends the line of `lineage`, its line end included.
    pub fn write_line(&self, out: &mut Vec<u8>) {
        let entry = &self.entry;
        put(out, format_args!("{{\"seq\":{},\"op\":\"{}\",\"branch\":", entry.seq, entry.op.name()));
        text(out, &entry.branch);
        out.extend_from_slice(b",\"parent\":");
        match &entry.parent {
            Some(parent) => text(out, parent),
            None => out.extend_from_slice(b"null"),
        }
        put(out, format_args!(",\"time\":\"{}\"", entry.time));
        for (key, value) in [("agent", &entry.agent), ("session", &entry.session), ("task", &entry.task)] {
            put(out, format_args!(",\"{key}\":"));
            text(out, value);
        }
        put(out, format_args!(",\"uid\":{},\"base\":\"{}\",\"head\":\"{}\"", entry.uid, entry.base, entry.head));
        let counts = &entry.counts;
        let (put_count, deleted, files) = (counts.put, counts.deleted, counts.files);
        put(out, format_args!(",\"counts\":{{\"put\":{put_count},\"deleted\":{deleted},\"files\":{files}}}"));
        entry.detail.write_json(entry.op, out);
        put(out, format_args!(",\"prev\":\"{}\",\"entry\":\"{}\",\"key\":\"{}\"", entry.prev, self.hash, entry.key));
        self.write_signature(out);
        out.extend_from_slice(b"}\n");
    }

    /// Appends what those see of it who may not enter its branch: a line of the same length, filled with blanks.
    pub fn write_hidden_line(&self, length: usize, out: &mut Vec<u8>) {
        let (entry, start) = (&self.entry, out.len());
        put(out, format_args!("{{\"seq\":{},\"op\":\"{}\"", entry.seq, entry.op.name()));
        put(out, format_args!(",\"time\":\"{}\",\"prev\":\"{}\",\"entry\":\"{}\"", entry.time, entry.prev, self.hash));
        self.write_signature(out);
        out.extend_from_slice(b",\"hidden\":true}");
        out.resize((start + length).saturating_sub(1).max(out.len()), b' ');
        out.push(b'\n');
    }

    /// Appends the line of `events.jsonl`, its line end included.
    pub fn write_event(&self, out: &mut Vec<u8>) {
        let entry = &self.entry;
        out.extend_from_slice(b"{\"agent\":");
        text(out, &entry.agent);
        out.extend_from_slice(b",\"branch\":");
        text(out, &entry.branch);
        let (counts, op) = (&entry.counts, entry.op.name());
        put(out, format_args!(",\"deleted\":{},\"entry\":\"{}\",\"event\":\"{op}\"", counts.deleted, self.hash));
        put(out, format_args!(",\"files\":{}", counts.files));
        if !entry.op.hides_head() {
            put(out, format_args!(",\"head\":\"{}\"", entry.head));
        }
        for (nth, item) in entry.detail.items.iter().enumerate() {
            out.extend_from_slice(if nth == 0 { b",\"items\":[" } else { b"," });
            text(out, item);
        }
        if !entry.detail.items.is_empty() {
            out.push(b']');
        }
        if let Some(label) = &entry.detail.label {
            put(out, format_args!(",\"{}\":", entry.op.label_key()));
            text(out, label);
        }
        put(out, format_args!(",\"put\":{},\"seq\":{}", counts.put, entry.seq));
        if let Some(words) = entry.detail.text.as_deref().and_then(|words| entry.op.event_text(words)) {
            out.extend_from_slice(b",\"text\":");
            text(out, words);
        }
        put(out, format_args!(",\"time\":\"{}\",\"uid\":{}}}\n", entry.time, entry.uid));
    }

    fn write_signature(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"sig\":\"");
        for byte in self.signature {
            out.extend([byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]));
        }
        out.push(b'"');
    }

    /// Returns the line of `lineage` without its line end.
    pub fn to_line(&self) -> String {
        let mut line = Vec::new();
        self.write_line(&mut line);
        line.pop();
        String::from_utf8(line).unwrap_or_default()
    }
}

impl Detail {
    fn write_json(&self, op: EntryOp, out: &mut Vec<u8>) {
        if let Some(merge) = &self.merge {
            put(out, format_args!(",\"child_head\":\"{}\"", merge.child_head));
        }
        // Of merges also where there are none.
        let is_rollback = op == EntryOp::Rollback && !self.conflicts.is_empty();
        if self.strategy.is_some() || is_rollback {
            let conflicts: Value = self.conflicts.iter().map(Decision::to_json).collect();
            put(out, format_args!(",\"conflicts\":{conflicts}"));
        }
        if op == EntryOp::Purge {
            let purged: Value = self.conflicts.iter().map(Decision::to_purged_json).collect();
            put(out, format_args!(",\"purged\":{purged}"));
        }
        if let Some(label) = &self.label {
            put(out, format_args!(",\"{}\":", op.label_key()));
            text(out, label);
        }
        if let Some(merge) = &self.merge {
            let not_merged: Value = merge.not_merged.iter().map(|path| Value::from(&**path)).collect();
            put(out, format_args!(",\"not_merged\":{not_merged},\"parent_head\":\"{}\"", merge.parent_head));
            put(out, format_args!(",\"plan\":\"{}\"", merge.plan));
        }
        if let Some(plan) = &self.plan {
            put(out, format_args!(",\"plan\":\"{plan}\""));
        }
        if let Some(strategy) = self.strategy {
            put(out, format_args!(",\"strategy\":\"{strategy}\""));
        }
        if let Some(owner) = self.owner(op) {
            put(out, format_args!(",\"owner\":{owner}"));
        } else if let Some(words) = &self.text {
            out.extend_from_slice(b",\"text\":");
            text(out, words);
        }
    }
}

fn put(out: &mut Vec<u8>, what: std::fmt::Arguments<'_>) {
    out.write_fmt(what).expect("writing to memory does not fail");
}

fn text(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("writing to memory does not fail");
}
