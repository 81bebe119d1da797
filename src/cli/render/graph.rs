//! Draws a graph of entries in columns, newest first.
//!
//! Column c is at character 2c. Each column waits for one entry: the next older one of its line.
//!
//! ```text
//! *      a merge
//! |\     … opens a column for the branch merged
//! | *
//! * |
//! |/     two columns that wait for one entry run together above it
//! *
//! ```

/// The rows that one entry takes in the drawing, from top to bottom.
#[derive(Debug, PartialEq, Eq)]
pub struct EntryRows {
    /// Its index in `parents`.
    pub entry: usize,
    /// A row above its own, where columns run together.
    pub row_above: Option<String>,
    /// The row with its `*`, behind which the entry itself is printed.
    pub row: String,
    /// A row below, where a column opens or is joined.
    pub row_below: Option<String>,
}

/// Draws the graph that `parents` describes (for each entry the older ones it follows); `first` gets the leftmost column.
pub fn draw(parents: &[Vec<usize>], first: Option<usize>) -> Vec<EntryRows> {
    let mut columns = GraphColumns { awaited: Vec::new(), reserved: first };
    (0..parents.len()).rev().map(|entry| columns.place(entry, &parents[entry])).collect()
}

struct GraphColumns {
    /// The entry that each column waits for; a free column waits for none.
    awaited: Vec<Option<usize>>,
    /// The entry that the leftmost column is kept for, until it comes.
    reserved: Option<usize>,
}

impl GraphColumns {
    fn place(&mut self, entry: usize, parents: &[usize]) -> EntryRows {
        let ends: Vec<usize> = (0..self.awaited.len()).filter(|&c| self.awaited[c] == Some(entry)).collect();
        let column = self.column_for(entry, &ends);
        let ends: Vec<usize> = ends.into_iter().filter(|&c| c != column).collect();
        for &end in &ends {
            self.awaited[end] = None;
        }
        let row_above = (!ends.is_empty()).then(|| self.link(column, &ends, &[]));
        self.awaited[column] = Some(entry);
        let row = self.row(column);
        self.awaited[column] = parents.first().copied();
        let row_below = parents.get(1).map(|&second| self.branch_off(column, second));
        while self.awaited.last() == Some(&None) {
            self.awaited.pop();
        }
        EntryRows { entry, row_above, row, row_below }
    }

    fn column_for(&mut self, entry: usize, ends: &[usize]) -> usize {
        if self.reserved == Some(entry) {
            self.reserved = None;
            if self.awaited.is_empty() {
                self.awaited.push(None);
            }
            return 0;
        }
        ends.first().copied().unwrap_or_else(|| self.free_after(0))
    }

    /// Returns a free column, not left of `column`.
    fn free_after(&mut self, column: usize) -> usize {
        let from = column.max(usize::from(self.reserved.is_some()));
        let free = (from..self.awaited.len()).find(|&c| self.awaited[c].is_none());
        free.unwrap_or_else(|| {
            // The reserved column has to be there before one beside it.
            self.awaited.resize(self.awaited.len().max(from) + 1, None);
            self.awaited.len() - 1
        })
    }

    /// Lets a column wait for a second older entry, and draws the way to it.
    fn branch_off(&mut self, column: usize, second: usize) -> String {
        if let Some(joined) = (0..self.awaited.len()).find(|&c| c != column && self.awaited[c] == Some(second)) {
            return self.link(column, &[joined], &[]);
        }
        let opened = self.free_after(column + 1);
        self.awaited[opened] = Some(second);
        self.link(column, &[opened], &[opened])
    }

    fn row(&self, column: usize) -> String {
        let cell = |(c, waiting): (usize, &Option<usize>)| match waiting {
            _ if c == column => "* ",
            Some(_) => "| ",
            None => "  ",
        };
        self.awaited.iter().enumerate().map(cell).collect::<String>().trim_end().to_owned()
    }

    /// Draws lines from `column` to each of `others`; what is in `hidden` does not pass through this row.
    fn link(&self, column: usize, others: &[usize], hidden: &[usize]) -> String {
        let mut row = vec![' '; 2 * self.awaited.len()];
        for (c, waiting) in self.awaited.iter().enumerate() {
            if waiting.is_some() && !hidden.contains(&c) {
                row[2 * c] = '|';
            }
        }
        for &other in others {
            let right = other > column;
            // Columns run together downwards to the left; one that opens does so to the right.
            let slope = if right && self.awaited[other].is_some() { '\\' } else { '/' };
            let corner = if right { 2 * other - 1 } else { 2 * other + 1 };
            let between = if right { 2 * column + 1..corner } else { corner + 1..2 * column };
            for cell in &mut row[between] {
                *cell = match *cell {
                    '|' => '+',
                    ' ' => '-',
                    kept => kept,
                };
            }
            row[corner] = slope;
        }
        row.into_iter().collect::<String>().trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(parents: &[&[usize]], first: Option<usize>, expected: &[&str]) {
        let parents: Vec<Vec<usize>> = parents.iter().map(|p| p.to_vec()).collect();
        let mut rows = Vec::new();
        for drawn in draw(&parents, first) {
            rows.extend(drawn.row_above);
            rows.push(format!("{} {}", drawn.row, drawn.entry));
            rows.extend(drawn.row_below);
        }
        assert_eq!(rows, expected, "\n{}", rows.join("\n"));
    }

    #[test]
    fn a_line_is_a_column() {
        check(&[&[], &[0], &[1]], None, &["* 2", "* 1", "* 0"]);
    }

    #[test]
    fn a_merge_opens_a_column_and_a_fork_closes_it() {
        check(&[&[], &[0], &[1], &[0], &[3, 2]], None, &["* 4", "|\\", "* | 3", "| * 2", "| * 1", "|/", "* 0"]);
    }

    #[test]
    fn an_unmerged_branch_stands_right_of_its_parent() {
        check(&[&[], &[0], &[0]], Some(1), &["  * 2", "* | 1", "|/", "* 0"]);
    }

    #[test]
    fn a_tip_that_its_child_waits_for_still_gets_the_left_column() {
        check(&[&[], &[0], &[1]], Some(0), &["  * 2", "  * 1", " /", "* 0"]);
    }

    #[test]
    fn several_forks_of_one_entry_run_together_in_one_row() {
        check(&[&[], &[0], &[0], &[0]], None, &["* 3", "| * 2", "| | * 1", "|/-/", "* 0"]);
    }

    #[test]
    fn a_line_crosses_the_columns_between() {
        // 4 merges 1, while 3, an open branch of 0, is between.
        check(
            &[&[], &[0], &[0], &[0], &[2, 1]],
            Some(4),
            &["* 4", "|\\", "| | * 3", "* | | 2", "| * | 1", "|/-/", "* 0"],
        );
        check(&[&[], &[0], &[0], &[1, 0], &[2]], None, &["* 4", "| * 3", "| |\\", "* | | 2", "| * | 1", "|/-/", "* 0"]);
    }

    #[test]
    fn a_pull_joins_the_parents_column_to_the_left() {
        // 2 is the parent's, 3 the child's pull of it, 4 the parent's next.
        check(&[&[], &[0], &[0], &[1, 2], &[2]], Some(4), &["* 4", "| * 3", "|/|", "* | 2", "| * 1", "|/", "* 0"]);
    }

    #[test]
    fn far_columns_are_joined_across_the_others() {
        // 5 and 4 are open branches; the column of 4 crosses that of 5 to reach 2.
        check(
            &[&[], &[0], &[0], &[0], &[2], &[1], &[3, 2]],
            None,
            &["* 6", "|\\", "| | * 5", "| | | * 4", "* | | | 3", "| |-+/", "| * | 2", "| | * 1", "|/-/", "* 0"],
        );
    }
}
