//! A pack, and the files of a tree whose chunks are in it.
#![no_main]

use std::sync::Arc;

use engramfs::object::Hash;
use engramfs::segment::SegmentError;
use engramfs::workspace::{Pack, Packs, Tree};

/// Has one pack under every name.
struct OnePack(Arc<Pack>);

impl Packs for OnePack {
    fn pack(&self, _: &Hash) -> Result<Arc<Pack>, SegmentError> {
        Ok(self.0.clone())
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (delta, pack) = engramfs_fuzz::split(bytes);
    let Ok(pack) = Pack::open(&engramfs_fuzz::blobs_with(pack), engramfs_fuzz::NAME) else { return };
    let _ = pack.verify();
    pack.contains(&Hash([0; 32]));
    let Ok(tree) = Tree::default().with_delta(delta) else { return };
    let packs = OnePack(Arc::new(pack));
    for inode in tree.inodes().take(20) {
        if let Some(content) = tree.node(inode).expect("it was listed").content() {
            let _ = content.read(0, 100_000, &packs);
            content.hash();
        }
    }
});
