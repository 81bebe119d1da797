//! Over many random steps, what is counted of changes is what a count of all gives.

use super::*;
use crate::workspace::RenameMode;

fn rename(name: &str, new_name: &str) -> FileOp<'static> {
    FileOp::Rename {
        parent: ROOT,
        name: file_name(name),
        new_parent: ROOT,
        new_name: file_name(new_name),
        mode: RenameMode::Plain,
        keep: false,
    }
}

/// Gives numbers below what it is called with, the same ones for the same seed.
fn random_numbers(mut seed: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    }
}

#[test]
fn what_is_counted_step_by_step_is_what_is_counted_anew() {
    let rig = rig();
    let (memory, who, main) = (&rig.memory, &rig.who, rig.main);
    for number in 0..20 {
        rig.put(main, &number.to_string(), "base").unwrap();
    }
    rig.quota(main, "records=100000");
    let mut random = random_numbers(3);
    let (mut branches, mut happened) = (vec![main], [0; 4]);
    for step in 0..400 {
        let branch = branches[random(branches.len() as u64) as usize];
        let id = random(30).to_string();
        match random(14) {
            0 if branches.len() < 6 => {
                branches.push(rig.fork(branch, &format!("b{step}")).unwrap());
                if random(2) == 0 {
                    memory.set(who, branches[branches.len() - 1], Setting::Log, "own").unwrap();
                }
            }
            1 if branch != main => {
                if memory.merge(who, branch, MergeVerb::Merge, false).is_ok() {
                    branches.retain(|other| *other != branch);
                }
            }
            2 if branch != main => drop(memory.merge(who, branch, MergeVerb::Pull, false)),
            3 => drop(memory.commit(who, branch, vec![RecordEdit::Delete { id: id.as_str().into() }])),
            4 | 5 => rig.append(branch, &"x".repeat(1 + random(40) as usize)),
            6 => happened[0] += u64::from(memory.archive_log(who, branch, 1 + random(4)).is_ok()),
            7 => happened[1] += u64::from(rig.purge(branch, id).is_ok()),
            8 => happened[2] += u64::from(rig.purge(branch, format!("shared/log/{}", 1 + random(9))).is_ok()),
            9 => rig
                .quota(branch, ["records=100000", "bytes=1G", ""][random(if branch == main { 2 } else { 3 }) as usize]),
            _ => rig.put(branch, &id, &"x".repeat(1 + random(40) as usize)).unwrap(),
        }
        memory.check_quota(main, |_| Ok(Usage::default())).unwrap();
        let catalog = memory.catalog().clone();
        let known = memory.admission.quotas.0.lock();
        let limited: Vec<BranchId> = catalog.branches.values().filter_map(|it| Some(own_quota(it)?.0)).collect();
        assert_eq!(known.total_usage.len(), limited.len(), "step {step}");
        for top in limited {
            let anew = KnownUsage::default().sum(&catalog, top).unwrap();
            assert_eq!(known.total_usage[&top], anew, "step {step}");
        }
        happened[3] = catalog.branch(main).unwrap().closed_logs.len() as u64;
    }
    assert!(happened.iter().all(|times| *times > 3), "archived, purged, purged entries, closed logs: {happened:?}");
}

/// Among the files are some with two names or none, and some with the bytes that the base has, written again.
#[test]
fn what_files_and_seals_change_is_counted_step_by_step_as_anew() {
    let rig = rig();
    let (memory, who, main) = (&rig.memory, &rig.who, rig.main);
    rig.put_many(main, 30);
    rig.quota(main, "records=100000 bytes=1G");
    let mut random = random_numbers(5);
    let (mut branches, mut happened) = (vec![main], [0; 15]);
    for step in 0..600 {
        let branch = branches[random(branches.len() as u64) as usize];
        let [id, name, other] = [("many-", 40), ("f", 9), ("f", 9)].map(|(is, below)| format!("{is}{}", random(below)));
        let inode = memory.files(&View::Branch(branch)).unwrap().resolve(name.as_bytes()).ok();
        let (bytes, size) = (["one", "two", "longer"][random(3) as usize].as_bytes(), [0, 3, 20][random(3) as usize]);
        let edit_inode = |op: &dyn Fn(u64) -> FileOp<'static>| inode.is_some_and(|inode| rig.edit(branch, op(inode)));
        let kind = random(15) as usize;
        let is_done = match kind {
            0 if branches.len() < 5 => rig.fork(branch, &format!("b{step}")).map(|fork| branches.push(fork)).is_ok(),
            1 => branch != main && memory.merge(who, branch, MergeVerb::Merge, false).is_ok(),
            2 => branch != main && memory.merge(who, branch, MergeVerb::Pull, false).is_ok(),
            3 => rig.put(branch, &id, ["x", "other"][random(2) as usize]).is_ok(),
            4 => memory.commit(who, branch, vec![RecordEdit::Delete { id: id.as_str().into() }]).is_ok(),
            5 | 6 if inode.is_none() => rig.create_file(branch, &name) > 0,
            6 | 7 => edit_inode(&|inode| FileOp::Write { inode, offset: 0, bytes: bytes.into() }),
            8 => edit_inode(&|inode| FileOp::SetAttr { inode, attrs: Attrs { size: Some(size), ..Attrs::default() } }),
            9 => edit_inode(&|inode| FileOp::Link { inode, parent: ROOT, name: file_name(&other) }),
            10 => rig.edit(branch, unlink(&name, random(2) == 0)),
            11 => memory.seal().is_ok(),
            12 => memory.checkpoint(who, branch, &format!("v{step}"), None).is_ok(),
            13 => {
                let label = rig.branch(branch).checkpoints.keys().next().cloned();
                label.is_some_and(|label| memory.rollback(who, branch, &label).is_ok())
            }
            14 => rig.edit(branch, rename(&name, &other)),
            _ => false,
        };
        happened[kind] += u32::from(is_done);
        if kind == 1 && is_done {
            branches.retain(|other| *other != branch);
        }
        memory.check_quota(main, |_| Ok(Usage::default())).unwrap();
        let catalog = memory.catalog().clone();
        let known = memory.admission.quotas.0.lock();
        // A branch is not below itself.
        let mut sum = Usage { branches: -1, ..Usage::default() };
        for branch in catalog.branches.values().filter(|branch| branch.log_totals.is_none()) {
            let whole = counted_whole(branch);
            assert_eq!(known.own_usage[&branch.id], whole, "step {step}, kind {kind}");
            sum = sum.plus(whole).plus(Usage { branches: 1, ..Usage::default() });
        }
        assert_eq!(known.total_usage[&main], sum, "step {step}, kind {kind}");
    }
    assert!(happened.iter().all(|times| *times > 0), "{happened:?}");
}
