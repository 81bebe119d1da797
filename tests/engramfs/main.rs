//! All integration tests in one binary: one link, and helpers shared.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

/// Named finds, each with its story.
mod regressions;

/// Kills, power cuts and failing disks.
mod durability;
/// Flipped, cut, swapped and forged bytes.
mod damage;
/// Random operations against a plain model.
mod model;
/// Stores in memory, clocks that tick, chance from seeds.
mod support;
