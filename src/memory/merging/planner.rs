//! Jobs that work out long merges in the background.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};

use super::merge_budget::{MergeBudget, MergedContents};
use super::merge_plan::{MergeContext, MergePlan};
use crate::memory::catalog::BranchId;
use crate::memory::command::merge_verb::MergeVerb;
use crate::memory::{Actor, Error, Memory, MergeError};
use crate::sync::{Condvar, Deadline, Mutex, Pool};

/// Jobs that run at a time, of all users; each waits for its user's turns.
const THREADS: usize = 8;
/// Plans, and contents of as many merges, that are kept for the next try.
const CACHED_PLANS_MAX: usize = 8;

type SharedPlan = Arc<MergePlan>;

/// What a plan is for. It depends on who merges, since rules may forbid it to one and not to another.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PlanKey {
    branch: BranchId,
    merge: MergeVerb,
    uid: u32,
}

/// One plan in the making, or made: none until then. Whoever waits holds it, so it may be let go of meanwhile.
struct PlanJob {
    purpose: PlanKey,
    /// Set behind the plan, and asked where the list of jobs is locked: under that no other lock may be taken.
    is_made: AtomicBool,
    plan: Mutex<Option<Result<SharedPlan, Error>>>,
    done: Condvar,
}

type BranchContents = ((BranchId, MergeVerb), Arc<MergedContents>);

/// All jobs, the threads that do them, and the contents that were merged for a branch.
pub(in crate::memory) struct Planner {
    pool: Pool,
    jobs: Mutex<Vec<Arc<PlanJob>>>,
    contents: Mutex<VecDeque<BranchContents>>,
}

impl Default for Planner {
    fn default() -> Planner {
        Planner { pool: Pool::new("planner", THREADS), jobs: Mutex::default(), contents: Mutex::default() }
    }
}

impl PlanJob {
    /// Waits for the plan, without end where there is no deadline; `None` if it is not made until then.
    fn wait(&self, deadline: Option<Deadline>) -> Option<Result<SharedPlan, Error>> {
        let plan = self.plan.lock();
        let plan = match deadline {
            None => self.done.wait_while(plan, |plan| plan.is_none()),
            Some(deadline) => self.done.wait_timeout_while(plan, deadline.remaining(), |plan| plan.is_none()).0,
        };
        plan.clone()
    }

    fn finish(&self, plan: Result<SharedPlan, Error>) {
        *self.plan.lock() = Some(plan);
        self.is_made.store(true, Ordering::Release);
        self.done.notify_all();
    }
}

impl Planner {
    fn find(&self, purpose: PlanKey) -> Option<Arc<PlanJob>> {
        self.jobs.lock().iter().find(|job| job.purpose == purpose).cloned()
    }

    /// Puts a job in place of an older one for the same purpose.
    fn add(&self, purpose: PlanKey) -> Arc<PlanJob> {
        let job =
            PlanJob { purpose, is_made: AtomicBool::new(false), plan: Mutex::default(), done: Condvar::default() };
        let job = Arc::new(job);
        let outdated = {
            let mut jobs = self.jobs.lock();
            // The older job may still run: whoever waits for it holds it, and it ends for them alone.
            let mut outdated: Vec<_> = jobs.extract_if(.., |other| other.purpose == purpose).collect();
            jobs.push(job.clone());
            if jobs.len() > CACHED_PLANS_MAX {
                // Only a plan that is made may go; one in the making is waited for, or will be asked for again.
                let made = jobs.iter().position(|job| job.is_made.load(Ordering::Acquire));
                outdated.extend(made.map(|at| jobs.remove(at)));
            }
            outdated
        };
        // With no lock held: freeing the states of plans may take long, and writers wait for the list.
        drop(outdated);
        job
    }

    /// Returns the contents that were merged for a branch, for whoever merges more of them.
    pub(in crate::memory) fn contents(&self, branch: BranchId, merge: MergeVerb) -> Arc<MergedContents> {
        let (purpose, mut all) = ((branch, merge), self.contents.lock());
        if let Some((_, contents)) = all.iter().find(|(of, _)| *of == purpose) {
            return contents.clone();
        }
        let contents = Arc::new(MergedContents::default());
        all.push_back((purpose, contents.clone()));
        let outdated = if all.len() > CACHED_PLANS_MAX { all.pop_front() } else { None };
        // With no lock held: freeing it may take long, and writers wait for the list.
        drop(all);
        drop(outdated);
        contents
    }

    /// Does something in the background, in the turns of root.
    pub(in crate::memory) fn run(&self, job: impl FnOnce() + Send + 'static) {
        self.pool.run(0, job);
    }

    /// Lets go of what was worked out for a branch, once a merge, pull, discard or purge has outdated it.
    pub(in crate::memory) fn forget(&self, branch: BranchId) {
        let jobs: Vec<_> = self.jobs.lock().extract_if(.., |job| job.purpose.branch == branch).collect();
        let mut contents: VecDeque<_> = {
            let mut all = self.contents.lock();
            let (outdated, kept) = std::mem::take(&mut *all).into_iter().partition(|((of, _), _)| *of == branch);
            *all = kept;
            outdated
        };
        contents.retain(|(_, contents)| !contents.is_empty());
        if !(jobs.is_empty() && contents.is_empty()) {
            // Dropped by the pool, since freeing the plans' states and what was merged for them may take long.
            self.run(move || drop((jobs, contents)));
        }
    }
}

impl Memory {
    /// Returns a plan that was up to date a moment ago, made in the background where there is none.
    ///
    /// Kind `Busy`, code `merge_too_long`, if it is not made until the deadline; it will be found made later.
    pub(in crate::memory) fn plan_in_background(
        &self,
        who: &Actor,
        branch: BranchId,
        merge: MergeVerb,
        deadline: Option<Deadline>,
    ) -> Result<SharedPlan, Error> {
        let purpose = PlanKey { branch, merge, uid: who.uid };
        let mut earlier = None;
        if let Some(job) = self.merging.planner.find(purpose) {
            let plan = job.wait(deadline).ok_or_else(planning_timeout)?;
            let now = self.now();
            match plan {
                Ok(plan) if plan.is_current(&self.catalog(), now) => return Ok(plan),
                // Out of date, but most of it may still be right.
                plan => earlier = plan.ok(),
            }
        }
        let job = self.merging.planner.add(purpose);
        let (memory, doing, actor) = (self.weak_self.clone(), job.clone(), who.clone());
        self.merging.planner.pool.run(who.uid, move || {
            let plan = || make_plan(&memory, purpose, &actor, earlier);
            // Whoever waits has to be told of a panic as well, or would wait for ever.
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(plan));
            doing.finish(caught.unwrap_or_else(|_| Err(Error::Internal("planning a merge"))));
        });
        job.wait(deadline).ok_or_else(planning_timeout)?
    }
}

/// Makes a plan of this moment, out of an earlier one as far as that is still right.
fn make_plan(
    memory: &Weak<Memory>,
    purpose: PlanKey,
    who: &Actor,
    earlier: Option<SharedPlan>,
) -> Result<SharedPlan, Error> {
    // The job holds the store weakly until it runs, so that queued plans do not keep a store from being closed.
    let memory = memory.upgrade().ok_or_else(|| Error::ReadOnly("the store was closed".to_owned()))?;
    // Entered before the catalog is cloned: a job that waits for its turn must not keep an old version in memory.
    let turn = memory.admission.turns.wait_for_turn(purpose.uid);
    let pause = || turn.pause();
    let contents = memory.merging.planner.contents(purpose.branch, purpose.merge);
    let merger = contents.merger(&pause);
    let merge_budget = MergeBudget { merger: &merger, pause: &pause, ..MergeBudget::ALL };
    let catalog = memory.catalog().clone();
    let context = MergeContext { catalog: &catalog, packs: &memory.storage.trees, time: memory.now() };
    let planned = match &earlier {
        Some(earlier) => earlier.replan(context, Some(who), &merge_budget),
        None => MergePlan::new(context, purpose.branch, purpose.merge, Some(who), &merge_budget),
    };
    Ok(Arc::new(planned?))
}

impl Memory {
    /// Resolves what was written of conflicts that were shown, in the background where there is a deadline. Kind
    /// `Busy`, code `merge_too_long`, if it takes longer than that: it goes on, for the next try.
    pub(in crate::memory) fn resolve_written_until(
        &self,
        branch: BranchId,
        deadline: Option<Deadline>,
    ) -> Result<(), Error> {
        // Without a deadline the caller may take its time, and where nothing was shown there is nothing to resolve.
        let Some(deadline) = deadline.filter(|_| self.merging.acks.has_any(branch)) else {
            return self.resolve_written(branch);
        };
        let ((tell, told), memory) = (mpsc::channel(), self.weak_self.clone());
        self.merging.planner.run(move || {
            let resolved = memory.upgrade().map_or(Ok(()), |memory| memory.resolve_written(branch));
            // The caller may have stopped waiting.
            let _ = tell.send(resolved);
        });
        match told.recv_timeout(deadline.remaining()) {
            Ok(resolved) => resolved,
            Err(RecvTimeoutError::Timeout) => Err(planning_timeout()),
            Err(RecvTimeoutError::Disconnected) => Err(Error::Internal("resolving a conflict")),
        }
    }
}

fn planning_timeout() -> Error {
    MergeError::TooLong.into()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::disk::ForgetfulDisk;
    use crate::memory::catalog::settings::Setting;
    use crate::memory::{Environment, Kind, MergeOptions, OpenMode, RecordEdit, RecordInput, Side};

    /// Records of a branch: more than a merge works out under the lock.
    const COUNT: u64 = 2_000;

    fn fill(memory: &Memory, who: &Actor, branch: BranchId, tag: &str) {
        let input = RecordInput { vector: None, text: Some("a text of some length".into()), metadata: "{}".into() };
        let put = |n: u64| RecordEdit::Put { id: format!("{tag}{n}").into(), input: input.clone() };
        // Few at a time, so that a seal puts them beside those of other branches.
        for first in (0..COUNT).step_by(100) {
            memory.commit(who, branch, (first..first + 100).map(put).collect()).unwrap();
        }
    }

    #[test]
    fn of_plans_that_are_made_the_newest_eight_are_kept() {
        let planner = Planner::default();
        let purpose = |number: u64| PlanKey { branch: BranchId(number), merge: MergeVerb::Merge, uid: 0 };
        (0..10).for_each(|number| planner.add(purpose(number)).finish(Err(Error::WouldWait)));
        let kept: Vec<u64> = (0..10).filter(|number| planner.find(purpose(*number)).is_some()).collect();
        assert_eq!(kept, (2..10).collect::<Vec<u64>>());
    }

    /// Writers wait for who forgets: what was merged may be long.
    #[test]
    fn what_was_merged_for_a_branch_is_freed_by_the_pool() {
        let (planner, is_free) = (Planner::default(), Arc::new(AtomicBool::new(false)));
        planner.contents(BranchId(1), MergeVerb::Merge).merge_one();
        let contents = Arc::downgrade(&planner.contents(BranchId(1), MergeVerb::Merge));
        for _ in 0..THREADS {
            let is_free = is_free.clone();
            planner.run(move || {
                while !is_free.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
            });
        }
        planner.forget(BranchId(1));
        assert!(contents.upgrade().is_some(), "it was freed by who forgot it");
        is_free.store(true, Ordering::Release);
        while contents.upgrade().is_some() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_plan_made_before_a_compaction_is_made_again() {
        let (disk, who) = (ForgetfulDisk::new(), Actor { uid: 0, gid: 0, name: "root".into() });
        let environment = Environment { reserve_bytes: 0, ..Environment::real(who.clone()) };
        let memory = Memory::open_on(Arc::new(disk.clone()), OpenMode::Create, None, environment).unwrap();
        let main = memory.root("main").unwrap();
        memory.set(&who, main, Setting::Keep, "0s").unwrap();
        let [child, other] = ["child", "other"].map(|name| memory.fork(&who, main, name, None).unwrap());
        for tag in ["a", "b", "c"] {
            fill(&memory, &who, other, tag);
        }
        fill(&memory, &who, child, "d");
        // One segment holds the rows of both.
        memory.gc(&who, None, false).unwrap();
        let planned = memory.plan_in_background(&who, child, MergeVerb::Merge, None).unwrap();
        memory.discard(&who, other).unwrap();
        memory.gc(&who, None, false).unwrap();
        assert!(
            !planned.is_current(&memory.catalog(), memory.now()),
            "the control: rows that the plan took have moved"
        );
        memory.merge_with(&who, child, MergeVerb::Merge, MergeOptions::default()).unwrap();
        memory.close().unwrap();
        let again =
            Memory::open_on(Arc::new(disk.power_cut_keep_all()), OpenMode::Existing, None, Environment::real(who))
                .unwrap();
        assert_eq!(again.catalog().branch(main).unwrap().state.totals().records, COUNT);
    }

    /// A store with `COUNT` records in `main` and a fork that wrote all of them.
    fn with_a_fork(who: &Actor) -> (Arc<Memory>, BranchId, BranchId) {
        let disk = Arc::new(ForgetfulDisk::new());
        let memory = Memory::open_on(disk, OpenMode::Create, None, Environment::real(who.clone())).unwrap();
        let main = memory.root("main").unwrap();
        fill(&memory, who, main, "a");
        let child = memory.fork(who, main, "child", None).unwrap();
        memory.commit(who, child, (0..COUNT).map(|n| put("of the child", n)).collect()).unwrap();
        (memory, main, child)
    }

    fn put(text: &str, n: u64) -> RecordEdit {
        let input = RecordInput { vector: None, text: Some(text.into()), metadata: "{}".into() };
        RecordEdit::Put { id: format!("a{n}").into(), input }
    }

    #[test]
    fn a_merge_that_takes_longer_than_its_caller_waits_is_busy_and_its_plan_serves_the_next_try() {
        let who = Actor { uid: 0, gid: 0, name: "root".into() };
        let (memory, _, child) = with_a_fork(&who);
        let purpose = PlanKey { branch: child, merge: MergeVerb::Merge, uid: who.uid };
        let job = memory.merging.planner.add(purpose);
        let merge = || {
            let deadline = Some(Deadline::from_now(std::time::Duration::ZERO));
            memory.merge_with(&who, child, MergeVerb::Merge, MergeOptions { deadline, ..MergeOptions::default() })
        };
        let error = merge().map(drop).unwrap_err();
        assert_eq!((error.kind(), error.code()), (Kind::Busy, "merge_too_long"));
        job.finish(make_plan(&memory.weak_self, purpose, &who, None));
        merge().unwrap();
    }

    /// Following works out only what the parent changed, so it could leave something as it was: a full plan tells.
    #[test]
    fn a_plan_that_follows_the_parent_is_that_of_both_as_they_are() {
        let who = Actor { uid: 0, gid: 0, name: "root".into() };
        let (memory, main, child) = with_a_fork(&who);
        let plan = || memory.plan_in_background(&who, child, MergeVerb::Merge, None).unwrap();
        let first = plan();
        let before = first.hash;
        // The first, the last and one between in order of ids.
        memory.commit(&who, main, [0, 999, 1_500].map(|n| put("of the parent", n)).into()).unwrap();
        let followed = plan();
        assert_eq!(
            followed.time, first.time,
            "what becomes of files, which is as it was, has the times of that moment"
        );
        let followed = followed.hash;
        memory.merging.planner.forget(child);
        assert_eq!((followed == before, plan().hash), (false, followed));
    }

    /// Each change on its own: what the branch writes, how its parent decides conflicts, and a conflict that is resolved.
    #[test]
    fn a_plan_no_longer_holds_once_the_branch_or_its_rules_have_changed() {
        let who = Actor { uid: 0, gid: 0, name: "root".into() };
        let (memory, main, child) = with_a_fork(&who);
        memory.commit(&who, main, vec![put("of the parent", 7)]).unwrap();
        let plan = || memory.plan_in_background(&who, child, MergeVerb::Merge, None).unwrap();
        let changes: [&dyn Fn(); 3] = [
            &|| assert!(memory.commit(&who, child, vec![put("written since", 1)]).is_ok()),
            &|| memory.set(&who, main, Setting::Strategy, "manual").unwrap(),
            &|| assert!(memory.resolve_conflict(&who, child, "a7", Side::Child).is_ok()),
        ];
        for change in changes {
            let planned = plan();
            assert!(planned.is_current(&memory.catalog(), memory.now()), "the control: nothing has changed yet");
            change();
            assert!(!planned.is_current(&memory.catalog(), memory.now()));
            let followed = plan().hash;
            memory.merging.planner.forget(child);
            assert_eq!((followed == planned.hash, plan().hash), (false, followed));
        }
    }
}
