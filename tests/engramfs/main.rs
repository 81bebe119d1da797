//! All integration tests in one binary: one link, and helpers shared.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

/// Modules, tables and sizes: the code is as docs/ARCHITECTURE.md says.
mod architecture;
mod manual_conflicts;
/// Named finds, each with its story.
mod regressions;

/// The built program on real mounts.
mod mount;

/// The built program on stores without a mount.
mod command_line;

/// Entries that are moved out of a store.
mod archive;
/// Clocks that are wrong.
mod clock;
/// Flipped, cut, swapped and deleted bytes and files.
mod damage;
/// Bytes that go wrong while a store is open.
mod damage_while_open;
/// Branches as plain folders, and back.
mod dump;
/// Kills, power cuts and torn writes.
mod durability;
/// What happens while a seal or a collection is under way.
mod during_seal;
/// Vectors that embedders make.
mod embedding;
/// Questions whose answers are known.
mod eval;
/// Every disk call fails in turn.
mod faults;
/// Operations on files at power cuts.
mod file_crashes;
/// Text files as answers to queries.
mod file_search;
/// Files without a mount: rules, lifetimes, rollback, what lost.
mod files;
/// System calls that make files durable, as strace sees them.
mod flushes;
/// Forged lineages.
mod forgery;
/// Stores with every kind of log record, as they are to be frozen.
mod frozen;
/// Full disks, and what is done on them.
mod full;
/// Merges that nobody has approved of.
mod gates;
/// Walks through graphs, hidden rows and damage.
mod graphs;
/// Imports by the built program.
mod imports;
/// Inode numbers lead to one file for ever.
mod inodes;
/// What the page says that can't be relied on.
mod known_limits;
/// Writes whose bytes stay in the journal.
mod long_writes;
/// Manifests that grow by what is new.
mod manifest;
/// What `--memory` leaves for the server.
mod memory_limits;
/// Random operations against a plain model.
mod model;
/// Stores that are made and copied.
mod new_stores;
/// Paths that are not UTF-8.
mod odd_paths;
/// Files without a name, which handles keep alive.
mod orphans;
/// Every disk call panics in turn.
mod panics;
/// Phrases and identifiers, as they are written.
mod phrases;
/// What plans of merges name, and when they stay the same.
mod plans;
/// What leaked and must go.
mod purge;
/// Purges of entries of shared logs.
mod purge_log;
/// What others do between a decision and what follows from it.
mod races;
/// Names and vectors that are refused.
mod refusals;
/// What branches were behind their entries.
mod retained_states;
/// Reverts, undo and redo.
mod reverts;
/// Queries to several places, and their words.
mod search_scopes;
/// Shared logs: what is in them after crashes and on failing disks.
mod shared_log;
/// Random steps that fail, made fewer.
mod shrink;
/// What things take in the journal.
mod sizes;
/// Room that comes back: packs that are thinned and combined.
mod space;
/// Who wrote what and when, in queries.
mod stamps;
/// States by label, entry and time.
mod states;
/// Histories that note what was acknowledged.
mod story;
/// Stores in memory, clocks that tick, chance from seeds.
mod support;
/// What belongs together: pulled, promoted, rolled back, opened again.
mod units;
/// In which order a store's files are written, flushed, named and removed.
mod write_order;
