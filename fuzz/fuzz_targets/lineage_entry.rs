//! Entries of the lineage: canonical bytes, the shorter form in memory, and the lines that readers see.
#![no_main]

use engramfs::lineage::{Entry, SIGNATURE_BYTES, SharedFields, SignedEntry};
use engramfs::object::{Reader, Writer};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(entry) = Entry::read(&mut Reader::new(bytes)) else { return };
    let canonical = entry.to_bytes();
    assert_eq!(Entry::read(&mut Reader::new(&canonical)).expect("what was written can be read"), entry);
    let signed = SignedEntry { hash: entry.hash(), entry, signature: [1; SIGNATURE_BYTES] };
    let mut rest = Writer::new();
    signed.write_rest(&mut rest);
    let (common, entry) = (SharedFields::of(&signed.entry), &signed.entry);
    let read = SignedEntry::read_rest(&mut Reader::new(rest.as_slice()), &common, entry.seq, entry.prev);
    assert_eq!(read.expect("what was written can be read"), signed);
    let line: serde_json::Value = serde_json::from_str(&signed.to_line()).expect("a line is JSON");
    assert_eq!(line["seq"], entry.seq);
    let mut event = Vec::new();
    signed.write_event(&mut event);
    serde_json::from_slice::<serde_json::Value>(&event).expect("an event is JSON");
});
