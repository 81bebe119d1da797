//! A file of sections: its footer, and bytes read in each of the ways there are. The first byte is the kind asked for.
#![no_main]

use engramfs::segment::{Blocks, Container};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((kind, file)) = bytes.split_first() else { return };
    let blobs = engramfs_fuzz::blobs_with(file);
    let Ok(container) = Container::open(&blobs, engramfs_fuzz::NAME, *kind) else { return };
    let _ = (container.verify(), container.extra().len(), container.file_bytes());
    let mut blocks = Blocks::default();
    for section in 0..20 {
        let Ok(mapped) = container.section(section).map(<[u8]>::to_vec) else { continue };
        assert_eq!(container.read_section(section).expect("it was read before"), mapped);
        for (start, length) in [(0, 1), (mapped.len() as u64 / 2, 7), (u64::MAX, 1), (1, u64::MAX)] {
            let slice = container.slice(section, start, length).map(<[u8]>::to_vec).ok();
            assert_eq!(container.read(section, start, length, &mut blocks).ok(), slice);
            assert_eq!(container.read_unchecked(section, start, length).ok(), slice);
        }
    }
    let mut number = 0;
    while container.recheck(number).is_some() {
        number += 1;
    }
});
