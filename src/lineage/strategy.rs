//! How a conflict is decided.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::Side;
use crate::object::Time;

/// Decides what becomes of a record that both sides changed differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// The child's version is taken, also where that is a delete.
    ChildWins,
    /// The parent's version is taken, also where that is a delete.
    ParentWins,
    /// The later one is taken, by `modified`; a delete counts from when it was done; a tie goes to
    /// the child.
    #[default]
    NewestWins,
    /// Of two records that both sides added under one id both are kept, the child's under another id; else like
    /// [`Strategy::NewestWins`].
    KeepBoth,
    /// The merge is refused until each conflict is resolved by `resolve`.
    Manual,
}

impl Strategy {
    /// All strategies, in the order of [`Strategy::NAMES`].
    pub const ALL: [Strategy; 5] =
        [Strategy::ChildWins, Strategy::ParentWins, Strategy::NewestWins, Strategy::KeepBoth, Strategy::Manual];

    /// The words for all of them, as hints list them.
    pub const NAMES: &str = "child-wins, parent-wins, newest-wins, keep-both or manual";

    /// Returns the strategy with the sides exchanged: a pull is planned with the parent in the child's place.
    pub fn with_sides_swapped(self) -> Strategy {
        match self {
            Strategy::ChildWins => Strategy::ParentWins,
            Strategy::ParentWins => Strategy::ChildWins,
            Strategy::NewestWins | Strategy::KeepBoth | Strategy::Manual => self,
        }
    }

    /// Returns the side that is taken where the child changed at one time and the parent at another; `None` if a person
    /// decides.
    ///
    /// ```
    /// use engramfs::lineage::Side;
    /// use engramfs::lineage::Strategy;
    /// use engramfs::object::Time;
    ///
    /// assert_eq!(Strategy::NewestWins.winner(Time(1), Time(2)), Some(Side::Parent));
    /// assert_eq!(Strategy::NewestWins.winner(Time(2), Time(2)), Some(Side::Child), "a tie is the child's");
    /// assert_eq!(Strategy::ParentWins.winner(Time(2), Time(1)), Some(Side::Parent));
    /// assert_eq!(Strategy::Manual.winner(Time(2), Time(1)), None);
    /// ```
    pub fn winner(self, child: Time, parent: Time) -> Option<Side> {
        match self {
            Strategy::ChildWins => Some(Side::Child),
            Strategy::ParentWins => Some(Side::Parent),
            Strategy::NewestWins | Strategy::KeepBoth if parent > child => Some(Side::Parent),
            Strategy::NewestWins | Strategy::KeepBoth => Some(Side::Child),
            Strategy::Manual => None,
        }
    }

    /// Returns whether the side that changed later wins, so that the times of both have to be known.
    pub fn later_wins(self) -> bool {
        match self {
            Strategy::NewestWins | Strategy::KeepBoth => true,
            Strategy::ChildWins | Strategy::ParentWins | Strategy::Manual => false,
        }
    }

    /// Returns its name in `config/strategy`, rules and entries.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::ChildWins => "child-wins",
            Strategy::ParentWins => "parent-wins",
            Strategy::NewestWins => "newest-wins",
            Strategy::KeepBoth => "keep-both",
            Strategy::Manual => "manual",
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Says that a text names no strategy; the text is cut to 80 characters.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("'{0}' is no merge strategy")]
pub struct ParseStrategyError(String);

impl FromStr for Strategy {
    type Err = ParseStrategyError;

    fn from_str(text: &str) -> Result<Strategy, ParseStrategyError> {
        let found = Strategy::ALL.into_iter().find(|strategy| strategy.name() == text);
        found.ok_or_else(|| ParseStrategyError(text.chars().take(80).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_list_the_words_of_all_strategies() {
        let words = Strategy::ALL.map(Strategy::name);
        let sorted = |mut words: Vec<&'static str>| {
            words.sort_unstable();
            words
        };
        assert_eq!(
            sorted(Strategy::NAMES.split([',', ' ']).filter(|it| !["", "or"].contains(it)).collect()),
            sorted(words.to_vec())
        );
    }

    #[test]
    fn the_later_side_wins_and_a_tie_is_the_childs() {
        let [early, late] = [Time(1), Time(2)];
        for strategy in [Strategy::NewestWins, Strategy::KeepBoth] {
            assert_eq!(strategy.winner(early, late), Some(Side::Parent));
            assert_eq!(strategy.winner(late, early), Some(Side::Child));
            assert_eq!(strategy.winner(late, late), Some(Side::Child));
        }
        assert_eq!(Strategy::Manual.winner(early, late), None);
    }
}
