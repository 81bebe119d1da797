//! Orders of threads that shuttle chooses: `scripts/nightly.sh schedules`.

use std::sync::Arc;

use shuttle::sync::Mutex as Turns;
use shuttle::thread;

use super::{FrameKind, Journal, JournalError};
use crate::disk::{Disk, ForgetfulDisk};

struct Fixture {
    device: ForgetfulDisk,
    disk: Arc<dyn Disk>,
    /// The file that is written to.
    current: Turns<Arc<Journal>>,
}

impl Fixture {
    fn new() -> Fixture {
        let device = ForgetfulDisk::new();
        let disk: Arc<dyn Disk> = Arc::new(device.clone());
        disk.create_dir("journal").unwrap();
        disk.sync_dir("").unwrap();
        let current = Turns::new(Arc::new(Journal::create(&disk, &[1; 16]).unwrap()));
        Fixture { device, disk, current }
    }

    /// Appends and flushes; what was promised must be on the device.
    fn write(&self, number: u8) -> Result<(), JournalError> {
        let (journal, up_to) = {
            let current = self.current.lock().unwrap();
            (current.clone(), current.append(FrameKind::Command, &[&[number; 40]])?)
        };
        journal.sync(up_to)?;
        let durable = self.device.power_cut_keep_nothing().bytes(&Journal::file_path(journal.number())).unwrap();
        let end = up_to as usize;
        assert_eq!(durable.get(end - 40..end), Some(&[number; 40][..]));
        Ok(())
    }

    /// Lets another file follow.
    fn rotate(&self) -> Result<(), JournalError> {
        let mut current = self.current.lock().unwrap();
        let next = Journal::create_after(&self.disk, &current, &[2; 16])?;
        next.begin()?;
        *current = Arc::new(next);
        Ok(())
    }
}

fn run(fails: bool) {
    let fixture = Arc::new(Fixture::new());
    if fails {
        fixture.device.fail_next_sync(libc::EIO);
    }
    let threads = [1, 2, 3].map(|number| {
        let fixture = fixture.clone();
        thread::spawn(move || {
            let both = fixture.write(number).and_then(|()| fixture.write(10 + number));
            let all = if number == 3 { both.and_then(|()| fixture.rotate()) } else { both };
            let written = all.and_then(|()| fixture.write(20 + number));
            assert!(fails || written.is_ok(), "{written:?}");
        })
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn what_a_shared_flush_promises_is_on_the_device() {
    shuttle::check_random(|| run(false), 3000);
    shuttle::check_pct(|| run(false), 3000, 3);
}

#[test]
fn nobody_is_promised_what_a_failed_flush_lost() {
    shuttle::check_random(|| run(true), 3000);
    shuttle::check_pct(|| run(true), 3000, 3);
}
