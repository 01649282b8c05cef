"""Jobs that resume: a verb that makes rows is a plan and a worker.

``plan.plan`` compares what a command asks for with what its table holds. ``execute.execute`` runs a ``Worker`` on the
jobs that are owed, here or on other machines, and writes the rows. ``failures`` decides which errors become rows and
which stop the command. ``row_ids`` hashes row ids quickly. docs/adding/rows.md shows how a verb uses them.

Every verb that makes rows of the one table is built so, and so are ``mask`` and parts of ``mine``; ``synth`` uses the
plan only. ``explain`` has a planner of its own, because a row there has a key of three columns.
"""
