//! A graph as lists in memory, while it is being made.

/// One level: its rows and what each links to.
#[derive(Clone, Debug, Default)]
pub(super) struct Level {
    /// The rows of the level, ascending; in level 0 all rows.
    pub members: Vec<u32>,
    /// For each member the places of its neighbours in `members`, nearest first.
    pub lists: Vec<Vec<u32>>,
}

/// The levels of a graph, from the lowest, and the place in the highest where a walk begins.
#[derive(Clone, Debug)]
pub(super) struct Adjacency {
    pub levels: Vec<Level>,
    pub entry: u32,
}

impl Adjacency {
    /// Returns the row where a walk begins, `None` in a graph without rows.
    pub fn entry_row(&self) -> Option<u32> {
        self.levels.last()?.members.get(self.entry as usize).copied()
    }
}

impl Level {
    /// Returns the lists with every link turned round.
    pub fn reversed(&self) -> Vec<Vec<u32>> {
        let mut reversed = vec![Vec::new(); self.lists.len()];
        for (place, list) in self.lists.iter().enumerate() {
            for &next in list {
                reversed[next as usize].push(place as u32);
            }
        }
        reversed
    }
}

/// Adds everything that can be reached from `from` over the lists to `reached`.
pub(super) fn reach(lists: &[Vec<u32>], from: u32, reached: &mut [bool]) {
    let mut open = vec![from];
    reached[from as usize] = true;
    while let Some(place) = open.pop() {
        for &next in &lists[place as usize] {
            if !std::mem::replace(&mut reached[next as usize], true) {
                open.push(next);
            }
        }
    }
}
