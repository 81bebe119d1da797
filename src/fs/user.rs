//! Users, as far as a mount shows them.

/// A user of the system. A mount looks each uid up once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    /// The name in the lineage and in records.
    pub name: String,
    /// Gid of the primary group, shown as the group of what the user owns.
    pub gid: u32,
}

impl User {
    /// Finds a uid in the text of passwd(5), at its first line; `None` if there is none that can be read.
    pub fn find(passwd: &str, uid: u32) -> Option<User> {
        passwd.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next().filter(|name| !name.is_empty())?;
            let found: u32 = fields.nth(1)?.parse().ok()?;
            let gid = fields.next()?.parse().ok()?;
            (found == uid).then(|| User { name: name.to_owned(), gid })
        })
    }

    /// Returns the placeholder for a uid that nobody knows: the name `uid-7`, and the group that owns
    /// nothing.
    pub(super) fn unknown(uid: u32) -> User {
        User { name: format!("uid-{uid}"), gid: 65_534 }
    }
}

#[cfg(test)]
mod tests {
    use super::User;

    #[test]
    fn a_user_is_found_by_number_and_broken_lines_are_passed_over() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nbroken\n:x:7:7::\nann:x:1000:50::/home/ann:/bin/sh\n";
        assert_eq!(User::find(passwd, 1000), Some(User { name: "ann".into(), gid: 50 }));
        assert_eq!(User::find(passwd, 7), None);
        assert_eq!(User::find(passwd, 100), None);
    }
}
