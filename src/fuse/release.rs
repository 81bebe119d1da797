//! What the release of the kernel tells that its greeting does not.

/// The first release of which it is known, and of the one before that the first with the mend.
const SINCE: (u32, u32) = (6, 19);
const MENDED: (u32, u32, u32) = (6, 18, 10);

/// Tells whether a kernel drops the pages that a write past them covers also after the write. Older ones
/// do so before it alone: who reads a page in between keeps what was there.
pub(super) fn drops_pages(release: &str) -> bool {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(|word| word.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    let (major, minor, patch) = (next(), next(), next());
    (major, minor) >= SINCE || ((major, minor) == (MENDED.0, MENDED.1) && patch >= MENDED.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_as_numbers() {
        for new in ["6.18.10", "6.18.44-fc-v669", "6.19.0-rc1", "6.100", "7.0.1", "10.2"] {
            assert!(drops_pages(new), "{new}");
        }
        for old in ["6.6.0", "6.18.9", "6.18.0-44", "6.12.90", "5.19.20", "6.9.12", "", "odd"] {
            assert!(!drops_pages(old), "{old}");
        }
    }
}
