//! A chunk of entries of the lineage: the stored form, and the lines that readers see.
#![no_main]

use engramfs::lineage::{EntryChunkWriter, read_entry_chunk};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(entries) = read_entry_chunk(bytes, 7) else { return };
    let mut chunk = EntryChunkWriter::default();
    entries.iter().for_each(|signed| chunk.push(signed));
    if !entries.is_empty() {
        assert_eq!(read_entry_chunk(chunk.as_slice(), 7).expect("what was written can be read"), entries);
    }
    for signed in &entries {
        let line: serde_json::Value = serde_json::from_str(&signed.to_line()).expect("a line is JSON");
        assert_eq!(line["seq"], signed.entry.seq);
        let mut event = Vec::new();
        signed.write_event(&mut event);
        serde_json::from_slice::<serde_json::Value>(&event).expect("an event is JSON");
    }
});
