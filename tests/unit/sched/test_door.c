/* The engine's inbox: order, the bell, and names that are forgotten without memory and without a bound. */
#include "core/sched/door.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void test_jobs_and_names(void **state)
{
    (void)state;
    door *d = door_new();
    door_item items[3];
    door_mail mail;

    assert_true(door_put(d, &items[0]));
    door_forget(d, 1, 7);
    assert_true(door_put(d, &items[1]));
    assert_true(door_put(d, &items[2]));
    door_forget(d, 2, 8);
    door_take(d, true, (mono_time){0}, &mail); /* does not sleep: there is something */
    assert_ptr_equal(mail.items, &items[0]);
    assert_ptr_equal(items[0].next, &items[1]);
    assert_ptr_equal(items[1].next, &items[2]);
    assert_null(items[2].next);
    assert_int_equal(mail.n_names, 2);
    assert_int_equal(mail.names[0].domain, 1);
    assert_int_equal(mail.names[0].n_before, 1);
    assert_int_equal(mail.names[1].n_before, 3);
    assert_int_equal(mail.names[1].sequence, 8);
    assert_false(mail.all_names || mail.closed);

    door_forget(d, 3, 9); /* alone it rings too; what was taken stays readable */
    assert_int_equal(mail.names[0].sequence, 7);
    door_take(d, true, (mono_time){0}, &mail);
    assert_null(mail.items);
    assert_int_equal(mail.n_names, 1);
    assert_int_equal(mail.names[0].domain, 3);
    door_take(d, false, (mono_time){0}, &mail);
    assert_int_equal(mail.n_names, 0);

    door_close(d);
    assert_false(door_put(d, &items[0]));
    door_take(d, true, (mono_time){0}, &mail);
    assert_true(mail.closed);
    door_leave(d);
}

static void test_too_many_names(void **state)
{
    (void)state;
    door *d = door_new();
    door_mail mail;

    for (int i = 0; i < DOOR_MAX_NAMES; i++) {
        door_forget(d, 1, (uint64_t)i);
    }
    door_take(d, false, (mono_time){0}, &mail);
    assert_int_equal(mail.n_names, DOOR_MAX_NAMES);
    assert_int_equal(mail.names[DOOR_MAX_NAMES - 1].sequence, DOOR_MAX_NAMES - 1);
    assert_false(mail.all_names);
    for (int i = 0; i <= DOOR_MAX_NAMES; i++) {
        door_forget(d, 1, (uint64_t)i);
    }
    door_take(d, false, (mono_time){0}, &mail);
    assert_true(mail.all_names);
    door_take(d, false, (mono_time){0}, &mail);
    assert_false(mail.all_names);
    door_leave(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jobs_and_names),
        cmocka_unit_test(test_too_many_names),
    };
    return cmocka_run_group_tests_name("door", tests, NULL, NULL);
}
