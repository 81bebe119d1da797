//! The signals of a shared log, as those see them who have it.

use std::sync::Arc;

use crate::memory::catalog::BranchId;
use crate::memory::catalog::signals::{LEASE_LIFETIME, Signal, SignalLifetime};
use crate::memory::{Error, Memory};
use crate::object::Time;

impl Signal {
    /// Returns the lifetime in the form in which it is set: `600s`, `lease`, or empty for no limit.
    pub fn lifetime_text(&self) -> String {
        match self.lifetime {
            SignalLifetime::Unlimited => String::new(),
            SignalLifetime::Lease(_) => LEASE_LIFETIME.to_owned(),
            SignalLifetime::Nanos(nanos) => match nanos % 1_000_000_000 {
                0 => format!("{}s", nanos / 1_000_000_000),
                _ if nanos % 1_000_000 == 0 => format!("{}ms", nanos / 1_000_000),
                _ => format!("{nanos}ns"),
            },
        }
    }
}

impl Memory {
    /// Returns a signal of the shared log that a branch uses; `None` if there is no such key, or it has ended. Fails
    /// only with `Gone`, if the branch has ended.
    pub fn signal(&self, branch: BranchId, key: &str) -> Result<Option<Arc<Signal>>, Error> {
        let found = {
            let catalog = self.catalog();
            catalog.log_owner(catalog.branch(branch)?)?.signals.get(key).cloned()
        };
        let now = self.now();
        Ok(found.filter(|signal| self.is_live(signal, now)))
    }

    /// Returns the keys of all live signals in the shared log that a branch uses, in bytewise order, each with the time
    /// of its claim. Fails only with `Gone`, if the branch has ended.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use engramfs::disk::ForgetfulDisk;
    /// use engramfs::memory::{Actor, Environment, Error, Kind, Memory, OpenMode, SignalId};
    ///
    /// # fn main() -> Result<(), Error> {
    /// # let ann = Actor { uid: 1000, gid: 1000, name: "ann".into() };
    /// # let environment = Environment::real(ann.clone());
    /// # let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, environment)?;
    /// # let main = memory.root("main").unwrap();
    /// let bob = memory.fork(&ann, main, "bob", None)?;
    /// let key: Arc<str> = "build".into();
    /// let claimed = memory.claim_signal(&ann, main, &key, 0o644)?;
    /// let id = SignalId { key: &key, created: claimed.created };
    /// memory.write_signal(&ann, main, id, b"running")?;
    /// memory.set_signal_lifetime(&ann, main, id, "10m")?;
    ///
    /// // All branches below `main` see it, and a key is claimed once.
    /// let seen = memory.signal(bob, "build")?.unwrap();
    /// assert_eq!((&*seen.value, seen.lifetime_text().as_str()), (&b"running"[..], "600s"));
    /// assert_eq!(memory.claim_signal(&ann, bob, &key, 0o644).unwrap_err().kind(), Kind::Exists);
    ///
    /// memory.remove_signal(&ann, main, &key)?;
    /// assert!(memory.signals(bob)?.is_empty());
    /// assert_eq!(memory.write_signal(&ann, main, id, b"done").unwrap_err().kind(), Kind::Gone);
    /// # Ok(())
    /// # }
    /// ```
    pub fn signals(&self, branch: BranchId) -> Result<Vec<(Arc<str>, Time)>, Error> {
        let signals = {
            let catalog = self.catalog();
            catalog.log_owner(catalog.branch(branch)?)?.signals.clone()
        };
        let now = self.now();
        let live = signals.iter().filter(|(_, signal)| self.is_live(signal, now));
        Ok(live.map(|(key, signal)| (key.clone(), signal.created)).collect())
    }
}
