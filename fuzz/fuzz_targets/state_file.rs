//! A file of earlier states, over rows that are there: all that is asked of it, and every state.
#![no_main]

use engramfs::branch::{StateFile, WrittenStates};
use engramfs::object::Time;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [empty, full, fewer] = engramfs_fuzz::states();
    let written =
        WrittenStates { name: engramfs_fuzz::NAME, held: full.clone(), full_states: vec![empty, full, fewer] };
    let Ok(file) = StateFile::open(&engramfs_fuzz::blobs_with(bytes), written) else { return };
    let _ = (
        file.verify(),
        file.newest_at(1, Time(i64::MAX)),
        file.newest_at_or_before(1, u64::MAX),
        file.oldest(2),
        file.first_after(1, 1),
    );
    let Ok(infos) = file.infos() else { return };
    for info in infos.iter().take(50) {
        let Ok(Some(retained)) = file.state(info.key) else { continue };
        assert_eq!((retained.time, retained.is_pinned), (info.time, info.is_pinned));
        let _ = (retained.state.head(), retained.state.find("a"), retained.base.totals());
    }
});
