//! What every verb of the ledger means, whichever driver keeps it. Only the public API is used: a driver is right when
//! all of this holds.
#![allow(clippy::unwrap_used)]

mod accept;
mod access;
mod agreement;
mod alerts;
mod attempt;
mod backlog;
mod budget;
mod call_budgets;
mod commands;
mod contacts;
mod driver;
mod event_edits;
mod failure_groups;
mod fencing;
#[path = "../fixtures/mod.rs"]
mod fixtures;
mod guard;
mod history;
mod identities;
mod imports;
mod inside;
mod keys;
mod late_identity;
mod lifecycle;
mod lists;
mod model;
mod operate;
mod repeats;
mod replays;
mod responses;
mod shadow;
mod shapes;
mod totals;
mod upkeep;

/// Every promise as a test of one driver. A promise that is not listed here does not compile.
macro_rules! suite {
    ($name:ident, $driver:ty) => {
        suite!(@ $name $driver;
            accept [
                a_new_event_is_kept_whole
                jobs_about_one_entity_are_known_by_it
                an_event_may_come_without_jobs
                a_repeat_is_answered_with_the_first
                a_repeat_with_other_content_is_a_clash
                a_repeat_shows_what_came_of_the_first
                repeats_within_one_commit_have_one_owner
                two_hundred_senders_of_one_key_make_one_event
                the_same_key_of_another_tenant_or_flow_is_another_key
                keys_that_begin_alike_are_told_apart
                a_sender_that_hangs_up_has_sent_all_the_same
                jobs_that_nobody_wants_to_hear_of_are_not_announced_and_can_be_read
                jobs_are_announced_once_they_can_be_read_and_before_the_sender_is_answered
            ]
            access [
                a_user_is_added_changed_and_removed_over_restarts
                a_new_password_or_a_removal_ends_the_sessions_of_a_user
                a_sign_in_link_counts_once_and_not_after_its_time
                a_credential_reads_back_with_its_use_and_can_be_revoked
                a_session_of_a_provider_keeps_its_issuer_subject_and_role
                sessions_beyond_the_maximum_and_expired_credentials_are_removed
            ]
            identities [
                effects_of_one_identity_run_one_after_the_other
                an_identity_stays_taken_while_an_outcome_is_open_and_its_job_lives
                the_record_of_an_identity_is_remembered
            ]
            keys [
                a_key_is_known_after_a_restart
                a_key_is_known_however_many_came_after_it
                a_key_is_known_while_it_is_moved_out_of_memory
                a_key_that_is_used_again_after_its_time_is_another_event
                an_expired_key_still_has_its_generation_after_it_left_memory
                generations_go_on_counting
                a_key_is_known_while_its_time_lasts_even_when_the_body_is_gone
                keys_are_known_after_the_newest_events_were_pruned
            ]
            repeats [
                events_of_one_request_are_accepted_together_in_their_order
                an_owner_on_the_other_side_of_a_bucket_edge_is_the_owner
                the_same_content_under_another_key_is_a_repeat_for_a_while
                contents_of_two_types_are_two_contents
                an_id_answered_as_a_repeat_of_content_stays_bound_beyond_the_window
                an_id_whose_own_event_expired_can_be_bound_to_another
                signed_content_under_another_id_is_a_repeat_for_the_lifetime_of_the_key
                contents_are_compared_over_a_restart
                a_dropped_variant_is_kept_to_be_looked_at
                stored_requests_are_read_oldest_first_with_what_their_keys_dropped
                variants_beyond_the_bound_are_counted
                variants_go_with_the_body_of_their_event
                an_update_is_an_event_of_its_own_once
                an_update_at_a_bucket_edge_is_the_same_on_both_sides
                a_quarantined_clash_waits_for_a_person
                a_quarantined_event_is_dead_from_the_start_and_a_replay_revives_it
                lossy_conversions_are_counted_by_field
                how_late_a_source_repeats_itself_is_known
                the_last_repeats_of_an_event_are_kept_with_their_difference
            ]
            attempt [
                a_begin_writes_the_intent_and_counts_the_try
                tries_are_counted_over_retries
                a_try_can_be_begun_once
                a_finished_job_is_not_begun
                an_applied_effect_is_not_begun_again
                a_begin_that_nobody_waits_for_comes_before_its_settlement
                an_attempt_written_at_once_is_the_same_as_one_written_in_two
                every_state_can_be_settled_and_reads_back
                attempts_are_recorded_in_their_order
                a_job_can_be_settled_without_a_try
                a_settlement_of_an_older_try_writes_nothing
                a_finished_job_is_not_settled_again
                applied_stays_applied
                reads_are_counted_until_the_next_try
                an_effect_is_known_by_its_key_when_its_step_has_another_place
                the_last_confirmed_write_of_a_lane_is_rechecked_once_its_straggler_is_due
                a_lane_whose_job_still_runs_is_rechecked_later_and_one_whose_write_failed_is_not
                a_confirmed_write_of_a_dead_job_is_rechecked_once_it_is_replayed
                a_write_that_is_confirmed_while_an_older_one_is_compared_supersedes_it
            ]
            inside [
                a_note_is_kept_as_it_was_first_made
                warning_of_a_step_is_counted_once_for_its_source
                a_run_that_the_job_has_left_behind_notes_nothing
                a_mark_is_its_owners_in_every_run_and_nobody_elses
                a_mark_beside_the_edge_of_a_bucket_counts
                a_mark_of_another_store_is_another_mark
                an_expired_mark_is_free_and_is_pruned
                a_dropped_job_releases_its_marks
                any_order_of_marks_does_what_a_plain_model_does
            ]
            budget [
                retries_of_one_entity_are_counted_over_its_jobs_and_over_restarts
                a_retry_counts_for_a_while
                a_retry_of_an_older_try_is_refused_and_not_counted
                a_schedule_holds_since_it_was_first_seen
            ]
            operate [
                only_finished_and_dead_jobs_are_replayed
                jobs_are_counted_by_what_they_need_of_a_configuration
                a_replayed_job_starts_over_and_remembers_its_tries
                a_replay_keeps_effect_keys_and_what_was_applied
                a_replay_can_move_jobs_to_another_revision
                a_replay_under_another_revision_starts_at_the_first_step
                a_second_replay_changes_nothing
                replayed_jobs_run_in_their_old_order_and_are_in_the_audit_trail
                a_replay_reads_back_what_nobody_knows
                what_happened_is_not_sent_again
                what_did_not_happen_is_sent
                only_a_parked_job_is_resolved_and_only_once
                a_verdict_is_about_what_the_job_is_parked_for_alone
                only_dead_and_parked_jobs_are_dropped
                a_dropped_job_is_neither_begun_nor_settled
            ]
            replays [
                a_replay_is_taken_batch_by_batch_and_over_restarts
                a_paused_or_cancelled_replay_takes_no_batch
                a_replay_that_applies_again_supersedes_effects_of_its_classes
            ]
            imports [
                rows_and_the_place_behind_them_are_one_commit
                a_batch_without_events_moves_the_import_on
                a_cancelled_import_takes_no_rows_until_it_is_started_again
                a_row_that_is_known_says_nothing_about_how_late_its_source_repeats_itself
                imports_are_listed_newest_first
            ]
            upkeep [
                a_pause_lasts_over_restarts_until_it_is_resumed
                a_revision_is_kept_as_it_was_first_given
                a_revision_that_comes_back_is_in_force_a_second_time
                the_audit_trail_is_read_newest_first_page_by_page
                the_audit_trail_is_filtered_and_its_pages_end_in_time
                what_is_live_dead_or_parked_is_never_pruned
                finished_events_go_with_everything_that_belongs_to_them
                bodies_may_go_before_their_events
                an_event_stays_while_its_key_is_remembered
                pruning_goes_slice_by_slice
                pruning_passes_events_that_must_stay_in_bounded_slices
                numbers_of_pruned_jobs_are_not_given_out_again
                every_pruned_row_is_counted
                the_clock_is_kept_and_is_not_before_the_newest_event
            ]
            backlog [
                the_backlog_of_a_destination_holds_its_jobs_alone
                only_waiting_jobs_are_made_due
                a_settled_job_moves_to_the_backlog_of_its_next_destination
                queued_jobs_are_read_page_by_page
                deferred_jobs_are_read_once_they_are_due
                a_lane_behind_a_deferred_job_is_not_read
                a_lane_of_internal_steps_belongs_to_one_worker
                blocked_lanes_name_their_head_and_the_jobs_behind_it
                a_page_of_blocked_jobs_ends_and_says_where
                running_jobs_of_an_older_term_are_read_as_running
                jobs_are_loaded_with_event_body_and_effects_in_the_order_of_the_request
                a_load_ends_before_its_bodies_are_too_large
            ]
            fencing [
                a_settlement_of_a_try_that_a_newer_owner_settled_as_interrupted_is_refused
                a_settlement_before_the_recovery_makes_the_recovery_stale
                a_begin_needs_the_expected_term_and_a_job_that_is_not_running
                a_settlement_without_a_call_needs_a_job_that_is_not_running
                a_newer_owner_settles_an_interrupted_job_that_has_no_intent
                a_replay_keeps_the_term_and_the_destination_unless_the_step_changes
            ]
            alerts [
                an_alert_is_kept_over_a_restart
                marks_of_operators_are_kept_until_the_alert_fires_again
            ]
            commands [
                a_response_is_kept_over_a_restart_and_belongs_to_one_request
                a_command_that_a_dead_process_served_is_in_doubt
                a_key_is_free_after_a_failure_and_after_its_time
            ]
            event_edits [
                an_edit_is_kept_beside_the_event_and_its_jobs_run_again
                an_event_whose_jobs_run_or_are_in_doubt_is_not_edited
                of_two_edits_of_one_revision_the_second_is_refused
                applied_effects_are_repeated_only_if_their_class_is_asked_for
                a_mark_belongs_to_the_effect_that_takes_the_place_of_its_owner
                an_edited_identity_moves_the_event_to_its_contact
                an_event_that_was_moved_twice_is_in_the_lane_of_its_last_contact
                an_edit_with_identifiers_of_two_contacts_is_refused
                revisions_go_with_their_event
                an_edited_event_is_not_looked_up_any_more
            ]
            failure_groups [
                dead_letters_are_grouped_by_why_they_died
                a_group_follows_replays_drops_and_unknown_outcomes
                a_quarantined_event_is_in_a_group_until_it_is_replayed
                a_resolved_group_opens_again_by_itself
                groups_are_read_page_by_page_and_empty_ones_expire
            ]
            shadow [
                a_shadow_begins_with_the_next_event_and_keeps_its_report
                a_shadow_is_stopped_once_with_a_line_in_the_audit_trail
            ]
            call_budgets [
                charged_calls_survive_a_restart_and_never_shrink
                calls_are_given_back_and_old_intervals_are_dropped
            ]
            shapes [
                shapes_are_kept_with_the_last_event_that_was_looked_at
                an_accepted_departure_is_the_new_normal_and_in_the_audit_trail
            ]
            responses [
                a_clock_starts_with_its_event_and_survives_a_restart
                a_clock_changes_and_ends_once_and_is_counted
                a_clock_sees_the_job_and_the_effect_that_answer
            ]
            history [
                counters_follow_what_the_ledger_does
                a_minute_is_kept_as_minute_hour_and_day
                a_repeated_minute_changes_nothing
                what_was_counted_before_a_crash_is_in_the_next_minute
                expired_intervals_are_removed_unless_the_clock_is_in_doubt
            ]
            totals [
                totals_follow_every_change_of_a_job
                the_oldest_live_job_and_dead_letter_are_known
                a_dead_letter_that_was_replayed_in_vain_does_not_hide_an_older_one
                a_replayed_job_is_not_as_old_as_its_event
                waiting_jobs_are_counted_by_what_they_wait_for
            ]
            agreement [
                the_change_sequence_grows_with_every_change_and_with_nothing_else
                a_proof_counts_for_one_request
                the_events_of_one_request_share_a_proof
            ]
            lists [
                jobs_are_listed_by_what_is_asked_for
                lists_are_read_page_by_page
                rare_sources_are_found_on_their_days
                reasons_of_death_are_counted_most_frequent_first
                an_event_is_found_by_its_name
                events_are_found_by_key_contact_status_and_time
                events_of_a_status_are_read_page_by_page
                live_jobs_are_counted_by_worker_and_state
                a_ledger_without_work_has_no_workers
                jobs_are_counted_by_state
                what_each_source_sent_is_tallied_by_day
                the_balance_is_read_in_parts
            ]
            guard [
                a_cap_is_exact_however_many_ask_at_once
                who_is_refused_is_not_begun
                one_effect_takes_one_place_however_often_it_is_tried
                what_did_not_happen_gives_its_place_back
                a_window_moves_on_and_old_places_are_pruned
                caps_hold_over_a_restart
                an_effect_that_does_not_happen_says_why
                what_was_said_last_about_consent_counts
                suppressed_contacts_are_known_and_shown_masked
                a_question_is_asked_once_and_its_job_waits
                the_first_answer_counts_and_wakes_the_job
                when_the_time_is_over_the_default_counts
                questions_are_listed_newest_first
                an_answer_between_asking_and_waiting_is_not_lost
                safe_mode_begins_and_ends_with_a_line_in_the_audit_trail
            ]
            contacts [
                every_identifier_leads_to_one_contact_and_one_lane
                an_event_without_an_observation_has_no_contact
                a_repeat_says_nothing_about_a_contact
                contacts_are_known_after_a_restart_and_after_they_left_memory
                events_are_found_by_their_trace_and_by_the_record_that_they_wrote
                an_event_that_links_two_contacts_is_a_conflict_and_merges_nothing
                a_merge_is_one_lane_and_one_state_and_a_split_takes_it_back
                a_quarantined_event_belongs_to_its_contact_once_it_is_replayed
                a_quarantined_conflict_has_no_contact_until_the_contacts_are_one
                contacts_are_not_merged_while_a_call_of_them_may_be_applied_late
                only_so_many_contacts_become_one
                a_confirmed_write_is_kept_until_it_is_in_doubt
                a_replayed_job_keeps_its_contact
            ]
            late_identity [
                a_later_event_with_the_same_link_releases_the_waiting_one
                a_release_is_recorded_shown_and_kept_over_a_restart
                an_event_is_released_once
                only_the_same_link_in_time_releases
                a_waiting_event_that_an_operator_has_dropped_or_replayed_is_not_released
                an_operator_identifies_an_event
                an_operator_cannot_identify_an_event_as_two_contacts
                only_so_many_events_wait_under_a_link_and_not_for_ever
                a_conflict_is_quarantined_where_the_rule_says_so_and_an_operator_decides
                lookups_of_a_quarantined_event_are_due_until_they_end
                a_lookup_releases_an_event_once_and_its_output_is_recorded
                an_event_that_is_released_otherwise_is_not_looked_up
            ]
            lifecycle [
                a_ledger_that_is_open_cannot_be_opened_again
                closing_does_not_wait_for_other_holders_and_ends_their_writing
                everything_sent_before_the_close_is_written
                a_ledger_is_held_until_its_writer_has_ended
                too_many_senders_are_turned_away_and_completions_are_not
                the_queue_is_empty_again_after_callers_gave_up_on_it
                numbers_keep_growing_over_restarts
            ]
            model [
                any_sequence_of_verbs_does_what_a_plain_model_does
            ]
        );
    };
    (@ $name:ident $driver:ty; $($module:ident [ $($promise:ident)* ])*) => {
        mod $name {
            $(mod $module {
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $promise() {
                    crate::$module::$promise::<$driver>().await;
                })*
            })*
        }
    };
}

suite!(sqlite, crate::driver::Sqlite);
suite!(memory, crate::driver::Memory);
