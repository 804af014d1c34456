// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.notes

import android.view.LayoutInflater
import android.view.View
import android.view.ViewGroup
import android.widget.TextView
import androidx.recyclerview.widget.DiffUtil
import androidx.recyclerview.widget.ListAdapter
import androidx.recyclerview.widget.RecyclerView

class NotesAdapter(private val delete: (Note) -> Unit) : ListAdapter<Note, NotesAdapter.Row>(ById) {
    class Row(view: View) : RecyclerView.ViewHolder(view) {
        val text: TextView = view.findViewById(R.id.text)
        val delete: View = view.findViewById(R.id.delete)
    }

    override fun onCreateViewHolder(parent: ViewGroup, viewType: Int) =
        Row(LayoutInflater.from(parent.context).inflate(R.layout.note, parent, false))

    override fun onBindViewHolder(holder: Row, position: Int) {
        val note = getItem(position)
        val context = holder.itemView.context
        holder.text.text = note.corrects?.let { context.getString(R.string.notes_correction, it.question, note.text) } ?: note.text
        holder.delete.contentDescription = context.getString(R.string.notes_delete, note.text.take(SPOKEN))
        holder.delete.setOnClickListener { delete(note) }
    }

    private object ById : DiffUtil.ItemCallback<Note>() {
        override fun areItemsTheSame(oldItem: Note, newItem: Note) = oldItem.id == newItem.id

        override fun areContentsTheSame(oldItem: Note, newItem: Note) = oldItem == newItem
    }

    private companion object {
        const val SPOKEN = 40  // characters of a note that say which one it is
    }
}
