//! Entries for the fuzz target of the manifest.

use std::cell::RefCell;
use std::sync::Arc;

use super::{Manifest, ManifestFiles, PartReader, Root};
use crate::disk::{Disk, ForgetfulDisk};
use crate::memory::Setting;
use crate::memory::storage::segments::Segments;
use crate::memory::storage::trees::TreeStore;
use crate::object::BlobStore;
use crate::segment::FOLDER;

/// Reads the payload of the file `manifest`; what is written of it, which leaves graphs out, reads back to the same.
pub fn manifest_root(bytes: &[u8]) {
    if let Ok(root) = Root::from_bytes(bytes) {
        let written = root.manifest.to_bytes(&root.parts);
        let again = Root::from_bytes(&written).expect("what was written can be read");
        assert_eq!(again.manifest.to_bytes(&again.parts), written);
    }
}

/// Reads the parts of a manifest on an empty blob store, and looks at every branch of the catalog that they give.
pub fn manifest_parts(parts: &[&[u8]]) {
    let mut reading = PartReader::default();
    if parts.iter().filter(|part| !part.is_empty()).any(|part| reading.read_part(part).is_err()) {
        return;
    }
    let disk: Arc<dyn Disk> = Arc::new(ForgetfulDisk::new());
    let segments = Segments::new(BlobStore::open_existing(disk.clone(), FOLDER), false);
    let trees = TreeStore::new(disk, false);
    let files = ManifestFiles { segments: &segments, trees: &trees, failure: RefCell::default() };
    let Ok(stored) = reading.finish(&files, Vec::new()) else { return };
    let catalog = stored.catalog().clone();
    for branch in catalog.branches.values() {
        branch.settings.rules();
        let _ = Setting::ALL.map(|setting| branch.settings.get(setting).len());
        let _ =
            (branch.settings.duration_nanos(Setting::Keep), branch.settings.scratch_bytes_max(), branch.state.head());
    }
    let _ = Manifest { catalog, ..Manifest::empty() }.to_bytes(&[]);
}
