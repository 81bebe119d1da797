//! When the maintenance thread rests and seals.

use super::*;
use std::sync::mpsc::channel;

#[test]
fn who_waits_for_maintenance_waits_while_a_seal_is_asked_for_and_under_way() {
    let maintenance = MaintenanceThread::default();
    maintenance.request(|requests| requests.seal = true);
    let ((tell, told), waiting) = (channel(), maintenance.clone());
    let waiter = std::thread::spawn(move || {
        waiting.rest();
        tell.send(()).unwrap();
    });
    let moment = Duration::from_millis(50);
    assert!(told.recv_timeout(moment).is_err(), "it is asked for");
    assert!(maintenance.next(Duration::ZERO).unwrap().seal);
    assert!(told.recv_timeout(moment).is_err(), "it is under way");
    assert!(!maintenance.next(Duration::ZERO).unwrap().seal);
    told.recv_timeout(Duration::from_secs(20)).unwrap();
    waiter.join().unwrap();
}

#[test]
fn long_writes_are_sealed_once_they_pause_or_when_they_are_too_many() {
    let mut quiescence = WriteQuiescence::default();
    let mut is_now = |written: u64| quiescence.is_now(written);
    assert!(!is_now(SEAL_BYTES - 1) && !is_now(SEAL_BYTES - 1), "too few");
    assert!(!is_now(SEAL_BYTES) && !is_now(SEAL_BYTES * 2), "more came");
    assert!(is_now(SEAL_BYTES * 2) && is_now(SEAL_BYTES * 2), "no more came");
    assert!(!is_now(0) && !is_now(SEAL_BYTES), "sealed, and more came");
    assert!(is_now(WRITTEN_BYTES_MAX) && is_now(WRITTEN_BYTES_MAX * 2), "too many");
}
