"""Jobs that resume: a verb that makes rows is a plan and a worker.

``plan.plan`` compares what a command asks for with what its table holds. ``execute.execute`` runs a ``Worker`` on the
missing jobs, here or on other machines, and writes the rows. ``rows`` makes key and outcome columns, and decides
which errors become rows and which stop the command. docs/adding/rows.md shows how a verb uses them.

Every verb that makes rows is built so, also ``explain``, whose rows have a key of three columns; ``synth`` uses the
plan only, because a shard of its files is a file, too.
"""
