//! What open files tell: that there is more to read, and that a value was refused.

use super::rig::Rig;

/// Polls what a handle has not seen the end of yet, and returns what hears when it is woken.
fn polled(rig: &Rig, handle: u64) -> std::sync::mpsc::Receiver<()> {
    rig.read_on(handle, 0).unwrap();
    let (wake, woken) = std::sync::mpsc::channel();
    let waker = move || wake.send(()).unwrap();
    assert_eq!(rig.fs.poll(handle, Some(Box::new(waker))), Ok(false));
    woken
}

#[test]
fn who_polls_a_shared_log_hears_of_branches_far_below() {
    const SOON: std::time::Duration = std::time::Duration::from_secs(5);
    let rig = Rig::new();
    rig.mkdir("main/branches/a").unwrap();
    rig.mkdir("main/branches/a/branches/b").unwrap();
    let b = "main/branches/a/branches/b";
    rig.write(&format!("{b}/config/signal_scope"), "session").unwrap();
    rig.write(&format!("{b}/shared/signals/key"), "value").unwrap();
    let above = rig.open("main/shared/events.jsonl", libc::O_RDONLY).unwrap();
    let woken = polled(&rig, above);
    rig.write(&format!("{b}/config/session"), "another").unwrap();
    woken.recv_timeout(SOON).expect("the signal has ended");
    assert_eq!(rig.fs.poll(above, None), Ok(true));
    for file in ["shared/events.jsonl", "shared/log/entries.jsonl"] {
        let inside = rig.open(&format!("{b}/{file}"), libc::O_RDONLY).unwrap();
        let woken = polled(&rig, inside);
        rig.rmdir(b).unwrap();
        woken.recv_timeout(SOON).expect("the branch has ended");
        assert_eq!(rig.fs.poll(inside, None), Ok(true));
        rig.mkdir(b).unwrap();
    }
}
